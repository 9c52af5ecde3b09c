"""Rings over cables, where no switch joins GPUs or nodes.

NCCL searches a graph for as many rings as the cables carry and splits the data among the rings. Two
GPUs joined by one cable have the bandwidth of one cable. All eight GPUs of a DGX-1 (hybrid cube
mesh, six cables for each GPU) have the bandwidth of six cables.
"""

from collections.abc import Iterator
from functools import cache

Cables = tuple[tuple[int, ...], ...]
Cycle = tuple[int, ...]

_STEPS = 10_000  # steps of a search; it then stops with the cycles that it has found
_LARGEST = 256  # vertices; larger graphs are not searched

DGX1: Cables = (  # NVIDIA DGX-1 with Tesla V100 white paper (2017), figure 4
    (0, 1, 1, 2, 2, 0, 0, 0),
    (1, 0, 2, 1, 0, 2, 0, 0),
    (1, 2, 0, 2, 0, 0, 1, 0),
    (2, 1, 2, 0, 0, 0, 0, 1),
    (2, 0, 0, 0, 0, 1, 1, 2),
    (0, 2, 0, 0, 1, 0, 2, 1),
    (0, 0, 1, 0, 1, 2, 0, 2),
    (0, 0, 0, 1, 2, 1, 2, 0),
)


@cache
def rings(cables: Cables, members: int) -> int:
    """How many rings through the first `members` GPUs fit on the cables at once.

    A cable carries one ring each way, so a cycle counts twice. Where the members' own cables form
    no cycle, NCCL relays through other GPUs and one cycle is assumed to fit.

    >>> [rings(DGX1, members) for members in (2, 3, 4, 6, 7, 8)]
    [1, 2, 4, 2, 4, 6]
    """
    if members == 2:
        return max(cables[0][1], 1)
    return max(2 * len(cycles(tuple(row[:members] for row in cables[:members]))), 2)


@cache
def cycles(cables: Cables) -> tuple[Cycle, ...]:
    """As many cycles through all vertices as possible that use each cable at most once; with more
    than 256 vertices, none. A search of some 10,000 steps may find fewer cycles than possible.

    >>> cycles(((0, 1, 0, 1), (1, 0, 1, 0), (0, 1, 0, 1), (1, 0, 1, 0)))
    ((0, 1, 2, 3),)
    """
    if not 2 < len(cables) <= _LARGEST:
        return ()
    return _Search([list(row) for row in cables]).most()


class _Search:
    """Tries all cycles; neighbours with the fewest ways onwards come first (Warnsdorff's rule)."""

    def __init__(self, left: list[list[int]]) -> None:
        self.left, self.steps = left, _STEPS

    def most(self) -> tuple[Cycle, ...]:
        best: tuple[Cycle, ...] = ()
        possible = min(map(sum, self.left)) // 2
        for cycle in self._cycles([0]) if possible else ():
            self._take(cycle, 1)
            best = max(best, (cycle, *self.most()), key=len)
            self._take(cycle, -1)
            if len(best) == possible:
                break
        return best

    def _take(self, cycle: Cycle, count: int) -> None:
        for a, b in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
            self.left[a][b] -= count
            self.left[b][a] -= count

    def _cycles(self, path: list[int]) -> Iterator[Cycle]:
        here, self.steps = path[-1], self.steps - 1
        if len(path) == len(self.left):
            if self.left[here][0] and path[1] < here:  # each cycle in one direction only
                yield tuple(path)
            return
        ways = {near: self._ways(near, path) for near in self._near(here) if near not in path}
        for near in sorted(ways, key=lambda vertex: (ways[vertex], vertex)):
            if self.steps > 0:
                yield from self._cycles([*path, near])

    def _near(self, vertex: int) -> Iterator[int]:
        return (near for near, count in enumerate(self.left[vertex]) if count)

    def _ways(self, vertex: int, path: list[int]) -> int:
        return sum(near not in path for near in self._near(vertex))
