"""Use of a rank's memory by operations: bytes that stay, and the highest level meanwhile.

Both are counted by part ("activations", "gradients", ...), relative to the level before the
operation. So operations in a row compose. The peak of two operations is the larger of two numbers:
the first operation's peak, and the bytes that it leaves plus the second operation's peak.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from itertools import groupby
from typing import TypeVar

from sim.config.dataclass import dataclass

Thing = TypeVar("Thing")


def runs(things: Iterable[Thing]) -> Iterator[tuple[Thing, int]]:
    """Yield each thing with the number of times that the same object follows in a row.

    >>> list(runs(["a", "a", "b", "a"]))
    [('a', 2), ('b', 1), ('a', 1)]
    """
    for _, same in groupby(things, key=id):
        alike = list(same)
        yield alike[0], len(alike)


Parts = Mapping[str, float]
Part = TypeVar("Part")


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Bytes by part that an operation leaves allocated (`kept`, negative if it frees), and bytes by
    part at the moment when most is allocated (`peak`).

    >>> forward = MemoryUse({"activations": 3.0}, {"activations": 3.0, "transient": 1.0})
    >>> backward = MemoryUse({"activations": -3.0}, {"transient": 2.0})
    >>> step = forward.then(backward)
    >>> step.highest, step.left, step.peak["activations"]
    (5.0, 0.0, 3.0)
    """

    kept: Parts = field(default_factory=dict)
    peak: Parts = field(default_factory=dict)

    @property
    def left(self) -> float:
        """Bytes that the operation leaves allocated, summed over parts."""
        return sum(self.kept.values())

    @property
    def highest(self) -> float:
        """Bytes at the worst moment. At least 0: the level before the operation counts, too."""
        return max(sum(self.peak.values()), 0.0)

    def then(self, behind: "MemoryUse") -> "MemoryUse":
        """Return the use of this operation followed by the operation `behind` it."""
        later = added(self.kept, behind.peak)
        worse = sum(later.values()) > sum(self.peak.values())
        return MemoryUse(added(self.kept, behind.kept), later if worse else self.peak)

    def repeated(self, times: int) -> "MemoryUse":
        """Return the use of this operation `times` times in a row. If each run leaves bytes, the
        last run has the peak, otherwise the first.

        >>> layer = MemoryUse({"activations": 2.0}, {"activations": 2.0, "transient": 1.0})
        >>> layer.repeated(3) == layer.then(layer).then(layer)
        True
        """
        if times == 1:
            return self
        before = {part: size * (times - 1) for part, size in self.kept.items()}
        kept = {part: size * times for part, size in self.kept.items()}
        return MemoryUse(kept, added(before, self.peak) if self.left > 0.0 else self.peak)


def added(*parts: Mapping[Part, float]) -> dict[Part, float]:
    """Return the sum of several mappings, part by part.

    >>> added({"weights": 1.0}, {"weights": 2.0, "gradients": 3.0})
    {'weights': 3.0, 'gradients': 3.0}
    """
    total: dict[Part, float] = {}
    for some in parts:
        for part, size in some.items():
            total[part] = total.get(part, 0.0) + size
    return total


def in_a_row(uses: Iterable[MemoryUse]) -> MemoryUse:
    """Return the use of operations in a row as the use of one operation."""
    whole = MemoryUse()
    for use, times in runs(uses):
        whole = whole.then(use.repeated(times))
    return whole


NOTHING = MemoryUse()
