"""Shortest paths on any graph; vertices are numbered from 0."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator

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
