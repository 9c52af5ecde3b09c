"""Grids that wrap around: vertices numbered along their dimensions, and routes between them.

The functions compute from numbers alone, so a large torus costs nothing before it is used.
"""

from collections.abc import Sequence
from functools import cache


def coordinates(vertex: int, dims: Sequence[int]) -> tuple[int, ...]:
    """Position in a grid of sizes `dims`, first dimension fastest.

    >>> coordinates(7, (4, 4))
    (3, 1)
    """
    position = []
    for size in dims:
        vertex, index = divmod(vertex, size)
        position.append(index)
    return tuple(position)


def vertex_at(position: Sequence[int], dims: Sequence[int]) -> int:
    """The inverse of `coordinates`.

    >>> vertex_at((3, 1), (4, 4))
    7
    """
    vertex = 0
    for index, size in zip(reversed(position), reversed(dims), strict=True):
        vertex = vertex * size + index
    return vertex


def neighbours(vertex: int, dims: Sequence[int]) -> tuple[int, ...]:
    """The vertices one step away in any dimension, in both directions, wrapping around."""
    position = coordinates(vertex, dims)
    adjacent: dict[int, None] = {}
    for dim, size in enumerate(dims):
        for step in (1, -1) if size > 1 else ():
            moved = (*position[:dim], (position[dim] + step) % size, *position[dim + 1 :])
            adjacent[vertex_at(moved, dims)] = None
    return tuple(adjacent)


def path(source: int, target: int, dims: Sequence[int]) -> tuple[int, ...]:
    """Dimension-ordered routing: correct the first dimension, then the next (Dally and Towles,
    Principles and Practices of Interconnection Networks, section 8.4). It takes the shorter way
    around each ring, and the way upwards where both ways are equally long.

    >>> path(0, 11, (4, 4))
    (0, 3, 7, 11)
    """
    here, goal = list(coordinates(source, dims)), coordinates(target, dims)
    visited = [source]
    for dim, size in enumerate(dims):
        ahead = (goal[dim] - here[dim]) % size
        step = 1 if ahead <= size - ahead else -1
        while here[dim] != goal[dim]:
            here[dim] = (here[dim] + step) % size
            visited.append(vertex_at(here, dims))
    return tuple(visited)


@cache
def grid_of(chips: int, dimensions: int) -> tuple[int, ...]:
    """The sizes of the most even grid of `chips` chips, smallest first.

    >>> grid_of(256, 2), grid_of(64, 3), grid_of(128, 3), grid_of(8, 2)
    ((16, 16), (4, 4, 4), (4, 4, 8), (2, 4))
    """
    if dimensions == 1:
        return (chips,)
    side = max(k for k in range(1, chips + 1) if k**dimensions <= chips and chips % k == 0)
    return (side, *grid_of(chips // side, dimensions - 1))
