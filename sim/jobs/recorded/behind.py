"""Blocks that the device may still be at work on when the script gives them back.

A block that other streams use, too (`Tensor.record_stream`), is given back by way of an event on
each of them; whenever memory is asked for, blocks of which all events have happened are free
(c10/cuda/CUDACachingAllocator.cpp: `insert_events`, `process_events`).
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence

from sim.jobs.recorded.recording import Recording


class Moments:
    """Of each event of a played step: when the host comes to it (`issued`), and when the device has
    `done` all that the event's stream was given up to there (s). The host takes `hosts` for each,
    and the `opening` before the first."""

    def __init__(
        self, own: Recording, done: Sequence[float], hosts: Sequence[float], opening: float
    ) -> None:
        self.done = done
        self.issued = _issued(own, done, hosts, opening)
        self.of: defaultdict[int, list[int]] = defaultdict(list)  # the events of each stream
        for number, event in enumerate(own.events):
            self.of[event.stream].append(number)

    def over(self, stream: int, event: int) -> float:
        """When what a stream was given before an event is done."""
        place = bisect_left(self.of[stream], event)
        return self.done[self.of[stream][place - 1]] if place else 0.0


def _issued(
    own: Recording, done: Sequence[float], hosts: Sequence[float], opening: float
) -> list[float]:
    """When the host comes to each event and, last, to the end; it waits where it synchronises."""
    times, marks = [opening], dict[int, float]()
    for event, end, seconds in zip(own.events, done, hosts, strict=True):
        now = times[-1] + seconds
        if event.kind == "record":
            marks[event.mark] = end
        elif event.kind == "sync":
            now = max(now, marks.get(event.mark, 0.0) if event.mark else end)
        times.append(now)
    return times


class InUse:
    """Blocks and the streams that use them; without `moments` the device is never behind."""

    def __init__(self, moments: Moments | None) -> None:
        self.moments = moments
        self._users: dict[int, set[int]] = {}
        self._until: dict[int, float] = {}  # blocks that were given back

    def use(self, block: int, stream: int) -> None:
        """A block is used on this stream, too."""
        self._users.setdefault(block, set()).add(stream)

    def give(self, block: int, event: int) -> bool:
        """Whether a block that is given back before this event is still in use."""
        users = self._users.pop(block, ())
        if not users or self.moments is None or event < 0:
            return False
        until = max(self.moments.over(stream, event) for stream in users)
        if until <= self.moments.issued[event]:
            return False
        self._until[block] = until
        return True

    def over(self, event: int) -> Iterator[int]:
        """The blocks that are free before this event."""
        for block, until in list(self._until.items()):
            if self.moments is None or until <= self.moments.issued[event]:
                del self._until[block]
                yield block
