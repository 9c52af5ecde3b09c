"""Shortest paths on any graph; vertices are numbered from 0."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import cache

Cables = tuple[tuple[int, ...], ...]
"""(vertex, vertex, how many, 1 where left out) of each."""

Neighbours = Callable[[int], Iterable[int]]


def shortest_path(source: int, target: int, neighbours: Neighbours) -> tuple[int, ...]:
    """Breadth-first search, the smallest-numbered neighbour first; () where no path leads."""
    came_from = {source: source}
    frontier = deque([source])
    while frontier and target not in came_from:
        here = frontier.popleft()
        for there in sorted(neighbours(here)):
            if there not in came_from:
                came_from[there] = here
                frontier.append(there)
    return tuple(reversed(list(_back(target, came_from)))) if target in came_from else ()


def _back(vertex: int, came_from: dict[int, int]) -> Iterator[int]:
    yield vertex
    while came_from[vertex] != vertex:
        vertex = came_from[vertex]
        yield vertex


def reachable(source: int, neighbours: Neighbours) -> set[int]:
    """All vertices that a path from `source` leads to, itself included."""
    reached, frontier = {source}, [source]
    while frontier:
        new = set(neighbours(frontier.pop())) - reached
        reached |= new
        frontier.extend(new)
    return reached


@cache
def adjacency(cables: Cables) -> dict[int, dict[int, int]]:
    """For each vertex its neighbours with the number of cables.

    >>> adjacency(((0, 1), (0, 1), (1, 2, 3)))
    {0: {1: 2}, 1: {0: 2, 2: 3}, 2: {1: 3}}
    """
    counts: dict[int, dict[int, int]] = {}
    for a, b, *count in cables:
        for here, there in ((a, b), (b, a)):
            to = counts.setdefault(here, {})
            to[there] = to.get(there, 0) + sum(count or [1])
    return counts
