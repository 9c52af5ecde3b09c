"""Rings through a node whose GPUs are joined by cables instead of a switch.

NCCL searches a node's graph for as many rings as the cables carry and splits the data among them.
So two GPUs joined by one cable have one cable's bandwidth, all eight GPUs of a DGX-1 (hybrid cube
mesh, six cables each) that of six.
"""

from collections.abc import Iterator
from functools import cache

Cables = tuple[tuple[int, ...], ...]

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
    return max(2 * _most_cycles([list(row[:members]) for row in cables[:members]]), 2)


def _most_cycles(left: list[list[int]]) -> int:
    """The most Hamiltonian cycles that use each cable at most once, by trying them all."""
    best, possible = 0, sum(left[0]) // 2
    for cycle in _cycles(left, [0]):
        _take(left, cycle, 1)
        best = max(best, 1 + _most_cycles(left))
        _take(left, cycle, -1)
        if best == possible:
            break
    return best


def _take(left: list[list[int]], cycle: list[int], count: int) -> None:
    for a, b in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
        left[a][b] -= count
        left[b][a] -= count


def _cycles(left: list[list[int]], path: list[int]) -> Iterator[list[int]]:
    if len(path) == len(left):
        if left[path[-1]][0] and path[1] < path[-1]:  # each cycle in one direction only
            yield list(path)
        return
    for gpu in range(len(left)):
        if gpu not in path and left[path[-1]][gpu]:
            yield from _cycles(left, [*path, gpu])
