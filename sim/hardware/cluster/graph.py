"""Shortest paths on the graphs that networks are built as; vertices are numbered from 0.

Each network answers `neighbours` and `path` by arithmetic on the vertex numbers, so a large torus
costs nothing until a route is asked for. Paths are deterministic and minimal.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

Path = tuple[int, ...]


def coordinates(vertex: int, dims: Sequence[int]) -> tuple[int, ...]:
    """Position in a grid of sizes `dims`, first dimension fastest.

    >>> coordinates(7, (4, 4))
    (3, 1)
    """
    position = []
    for size in dims:
        vertex, at = divmod(vertex, size)
        position.append(at)
    return tuple(position)


def vertex_at(position: Sequence[int], dims: Sequence[int]) -> int:
    """The inverse of `coordinates`.

    >>> vertex_at((3, 1), (4, 4))
    7
    """
    vertex = 0
    for at, size in zip(reversed(position), reversed(dims), strict=True):
        vertex = vertex * size + at
    return vertex


def torus_neighbours(vertex: int, dims: Sequence[int]) -> Path:
    """The vertices one step away in any dimension, in both directions, wrapping around."""
    position = coordinates(vertex, dims)
    found: dict[int, None] = {}
    for dim, size in enumerate(dims):
        for step in (1, -1) if size > 1 else ():
            moved = (*position[:dim], (position[dim] + step) % size, *position[dim + 1 :])
            found[vertex_at(moved, dims)] = None
    return tuple(found)


def torus_path(source: int, target: int, dims: Sequence[int]) -> Path:
    """Dimension-ordered routing: correct the first dimension, then the next (Dally and Towles,
    Principles and Practices of Interconnection Networks, section 8.4), the shorter way around
    each ring; halfway around, upwards.

    >>> torus_path(0, 11, (4, 4))
    (0, 3, 7, 11)
    """
    here, goal = list(coordinates(source, dims)), coordinates(target, dims)
    path = [source]
    for dim, size in enumerate(dims):
        ahead = (goal[dim] - here[dim]) % size
        step = 1 if ahead <= size - ahead else -1
        while here[dim] != goal[dim]:
            here[dim] = (here[dim] + step) % size
            path.append(vertex_at(here, dims))
    return tuple(path)


def dragonfly_gateway(group: int, towards: int, groups: int, routers: int) -> int:
    """The router of `group` that holds the cable to group `towards`.

    Cable k of a group leads to the k+1-th group after it (the relative arrangement, Camarero et
    al. 2014, section 3); the cables are dealt to the group's routers evenly and in order.
    """
    cable = (towards - group - 1) % groups
    each = -(-(groups - 1) // routers)
    return group * routers + cable // each


def dragonfly_path(source: int, target: int, groups: int, routers: int) -> Path:
    """Minimal routing: to the gateway, across, to the target (Kim et al. 2008, section 4.1).

    Routers of one group are all connected, and every two groups by one cable: at most 3 hops.

    >>> dragonfly_path(0, 5, groups=3, routers=2)
    (0, 1, 4, 5)
    """
    here, there = source // routers, target // routers
    stops: Path = (source, target)
    if here != there:
        out = dragonfly_gateway(here, there, groups, routers)
        into = dragonfly_gateway(there, here, groups, routers)
        stops = (source, out, into, target)
    return tuple(dict.fromkeys(stops))


def dragonfly_neighbours(vertex: int, groups: int, routers: int) -> Path:
    """The other routers of the group, then those at the far end of the router's own cables."""
    group = vertex // routers
    local = [v for v in range(group * routers, (group + 1) * routers) if v != vertex]
    others = [(group + k) % groups for k in range(1, groups)]
    far = [
        dragonfly_gateway(other, group, groups, routers)
        for other in others
        if dragonfly_gateway(group, other, groups, routers) == vertex
    ]
    return tuple(local + far)


def shortest_path(source: int, target: int, neighbours: Callable[[int], Iterable[int]]) -> Path:
    """Breadth-first search, the smallest-numbered neighbour first; () where there is no way."""
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


def reachable(source: int, neighbours: Callable[[int], Iterable[int]]) -> set[int]:
    """All vertices that a path from `source` leads to, itself included."""
    seen, frontier = {source}, [source]
    while frontier:
        new = set(neighbours(frontier.pop())) - seen
        seen |= new
        frontier.extend(new)
    return seen
