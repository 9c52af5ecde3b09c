"""The links that a message passes from one device to another.

On an irregular graph the route is a shortest path; vertices are numbered from 0.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import cache

from sim.hardware.cluster.network import ClusterNetwork, Route, path_links
from sim.hardware.cluster.placement import Placement


def route(cluster: Placement, source: int, target: int, path: int = 0) -> Route:
    """The links from GPU `source` to GPU `target`; () from a GPU to itself.

    Routes are deterministic: up and down in trees, dimension-ordered on tori, minimal on
    dragonflies, else a shortest path. `path` is the number of a connection between two NICs.
    """
    if source == target:
        return ()
    if cluster.node_of(source) == cluster.node_of(target):
        return inside(cluster, source, target)
    if cluster.network is None:
        raise ValueError(f"{cluster.name} has no network from GPU {source} to GPU {target}")
    relay = _relay(cluster, cluster.network, source, target)
    through_ports = cluster.node is not None and cluster.node.network_through_ports
    return (
        *(inside(cluster, source, relay) if relay != source else ()),
        *([("port-up", source)] if through_ports else ()),
        *_between(cluster, cluster.network, relay, target, path),
        *([("port-down", target)] if through_ports else ()),
    )


def inside(cluster: Placement, source: int, target: int) -> Route:
    """The links between two GPUs of one node."""
    if cluster.node is None or cluster.node.ports:
        return (("port-up", source), ("port-down", target))
    first, slots = source - cluster.slot_of(source), cluster.gpus_per_node
    path = cluster.node.path(source - first, target - first, slots)
    return path_links("nvlink", [first + slot for slot in path])


def _relay(cluster: Placement, network: ClusterNetwork, source: int, target: int) -> int:
    """The GPU of the source's node that hands the message to the network (NCCL 2.12's PXN)."""
    if not (network.rails and network.pxn) or cluster.node is None or not cluster.node.relays:
        return source
    rail = cluster.nic_of(target)[1]
    if cluster.nic_of(source)[1] == rail:
        return source
    first = source - cluster.slot_of(source)
    peers = range(first, first + cluster.gpus_per_node)
    return next(gpu for gpu in peers if cluster.nic_of(gpu)[1] == rail)


def _between(
    cluster: Placement, network: ClusterNetwork, source: int, target: int, path: int
) -> Route:
    if not network.nics:
        return network.route(cluster.node_of(source), cluster.node_of(target))
    (here, up), (there, down) = cluster.nic_of(source), cluster.nic_of(target)
    above = network.route(here, there, (up, down), path)
    return (("nic-up", here, up), *above, ("nic-down", there, down))


Cables = tuple[tuple[int, ...], ...]
"""Cables, each as (vertex, vertex, number of cables); the number is 1 where left out."""

Neighbours = Callable[[int], Iterable[int]]


def shortest_path(source: int, target: int, neighbours: Neighbours) -> tuple[int, ...]:
    """A path by breadth-first search, smallest-numbered neighbour first; () if there is none."""
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
    """All vertices to which a path from `source` leads, and `source` itself."""
    reached, frontier = {source}, [source]
    while frontier:
        new = set(neighbours(frontier.pop())) - reached
        reached |= new
        frontier.extend(new)
    return reached


@cache
def adjacency(cables: Cables) -> dict[int, dict[int, int]]:
    """The neighbours of each vertex, with the number of cables to each neighbour.

    >>> adjacency(((0, 1), (0, 1), (1, 2, 3)))
    {0: {1: 2}, 1: {0: 2, 2: 3}, 2: {1: 3}}
    """
    counts: dict[int, dict[int, int]] = {}
    for a, b, *count in cables:
        for here, there in ((a, b), (b, a)):
            to = counts.setdefault(here, {})
            to[there] = to.get(there, 0) + sum(count or [1])
    return counts
