"""Answers that are worked out once."""

from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from sim.config import reads

Key = tuple[object, ...]
Made = TypeVar("Made")


class Known:
    """Memoised results; jobs of one model, stack and device can share them."""

    def __init__(self) -> None:
        self._answers: dict[Key, Any] = {}
        self.read: reads.Reads = {}  # what they rest on

    def memo(self, key: Key, make: Callable[[], Made]) -> Made:
        """The result of `make`, computed once for each key; keys begin with their purpose."""
        if key not in self._answers:
            with reads.recorded() as read:
                self._answers[key] = make()
            self.read |= read
        made: Made = self._answers[key]
        return made

    def number(self, key: Key) -> int:
        """A number for each key."""
        return self.memo(("number", *key), lambda: len(self._answers))

    def __len__(self) -> int:
        return len(self._answers)


_KEPT, _MOST = 4, 20_000  # who have been asked of last, and answers of each
_asked: deque[tuple[tuple[object, ...], Known]] = deque(maxlen=_KEPT)


def known_of(*whose: object) -> Known:
    """The memo of a model, a stack and a device, cleared if it has grown too large: points of a
    sweep have most of it in common."""
    for asked, known in _asked:
        if asked == whose and len(known) < _MOST and reads.holds(known.read):
            reads.rest_on(known.read)
            return known
    _asked.appendleft((whose, Known()))
    return _asked[0][1]
