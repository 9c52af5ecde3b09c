"""Use of a rank's memory by operations: bytes that stay, and the highest level meanwhile.

Both are counted by part ("activations", "gradients", ...) and against what was there before, so
that operations in a row compose: the worst moment of two is the worse of the first one's and,
above what the first one leaves, the second one's.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from itertools import groupby
from typing import TypeVar

from sim.config.dataclass import dataclass

Thing = TypeVar("Thing")


def runs(things: Iterable[Thing]) -> Iterator[tuple[Thing, int]]:
    """Each thing with how many times it stands in a row, the very same object.

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
    """Bytes by part that an operation leaves allocated (`kept`, negative where it frees), and those
    at its worst moment (`peak`).

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
        """Bytes that stay."""
        return sum(self.kept.values())

    @property
    def highest(self) -> float:
        """Bytes at the worst moment; at least none, since it begins with what was there."""
        return max(sum(self.peak.values()), 0.0)

    def then(self, behind: "MemoryUse") -> "MemoryUse":
        """This operation and another one behind it."""
        later = added(self.kept, behind.peak)
        worse = sum(later.values()) > sum(self.peak.values())
        return MemoryUse(added(self.kept, behind.kept), later if worse else self.peak)

    def repeated(self, times: int) -> "MemoryUse":
        """So many in a row: the last one is the worst where each leaves something, else the first.

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
    """The sum, part by part.

    >>> added({"weights": 1.0}, {"weights": 2.0, "gradients": 3.0})
    {'weights': 3.0, 'gradients': 3.0}
    """
    total: dict[Part, float] = {}
    for some in parts:
        for part, size in some.items():
            total[part] = total.get(part, 0.0) + size
    return total


def in_a_row(uses: Iterable[MemoryUse]) -> MemoryUse:
    """Operations in a row as one."""
    whole = MemoryUse()
    for use, times in runs(uses):
        whole = whole.then(use.repeated(times))
    return whole


NOTHING = MemoryUse()
