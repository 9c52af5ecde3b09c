"""Spans of a host's time that are taken out of a trace."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate

Span = tuple[float, float]


class Removed:
    """The union of spans; times in us."""

    def __init__(self, spans: Iterable[Span] = ()) -> None:
        self.spans = tuple(_merged(spans))
        self._before = [0.0, *accumulate(end - begin for begin, end in self.spans)]

    def __bool__(self) -> bool:
        return bool(self.spans)

    def __contains__(self, moment: float) -> bool:
        place = self._place(moment)
        return place > 0 and moment < self.spans[place - 1][1]

    def seconds_left(self, begin: float, end: float) -> float:
        """Seconds between two moments without those that are removed.

        >>> Removed([(1e6, 2e6), (1.5e6, 3e6)]).seconds_left(0.0, 4e6)
        2.0
        """
        if end <= begin:
            return 0.0
        return (end - begin - self._until(end) + self._until(begin)) * 1e-6

    def _until(self, moment: float) -> float:
        """What is removed before a moment."""
        place = self._place(moment)
        if not place:
            return 0.0
        begin, end = self.spans[place - 1]
        return self._before[place - 1] + min(moment, end) - begin

    def _place(self, moment: float) -> int:
        return bisect_right(self.spans, moment, key=lambda span: span[0])


def _merged(spans: Iterable[Span]) -> Iterator[Span]:
    """The union of intervals.

    >>> list(_merged([(0.0, 2.0), (1.0, 3.0), (5.0, 6.0)]))
    [(0.0, 3.0), (5.0, 6.0)]
    """
    begin = end = None
    for a, b in sorted(spans):
        if end is None or begin is None or a > end:
            if begin is not None and end is not None:
                yield begin, end
            begin, end = a, b
        end = max(end, b)
    if begin is not None and end is not None:
        yield begin, end
