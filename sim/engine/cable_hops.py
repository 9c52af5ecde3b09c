"""Collectives between cabled nodes, hop by hop: which member sends how much to which member?"""

from collections.abc import Collection, Iterator, Sequence
from functools import cache
from itertools import product

from sim.collectives.schedule import algorithms
from sim.engine.group_links import EVERY, PAIRS, RINGS, Hop, Way, kinds_of, orders, way_of, ways
from sim.hardware.cluster.network import ClusterNetwork
from sim.hardware.cluster.topology import Topology


def hops(gpus: Sequence[int], topology: Topology, kinds: Collection[str]) -> Iterator[Hop]:
    """Yield the hops of collectives of some `kinds` among GPUs.

    Inside a node a ring visits the members one after the other. Between two nodes, the channels
    leave at each member in turn, as NCCL's channels do, so the bytes spread over the members' NICs.
    """
    nodes: dict[int, list[int]] = {}
    for gpu in gpus:
        nodes.setdefault(topology.node_of(gpu), []).append(gpu)
    closed = len(nodes) == 1 or topology.node is None or topology.node.ports
    for members in nodes.values():
        following = [*members[1:], members[0]] if closed else members[1:]
        yield from ((a, b, EVERY, 1.0) for a, b in zip(members, following, strict=False) if a != b)
    if len(nodes) == 1 or topology.network is None:
        return
    for number, way in enumerate(ways(topology.network)):
        if any(way[1] == way_of(kind, "")[1] for kind in kinds):
            for a, b, share in _between(tuple(nodes), topology.network, way):
                ends = list(_ends(nodes[a], nodes[b], way, topology.network))
                yield from ((source, target, number, share / len(ends)) for source, target in ends)


def _ends(
    here: list[int], there: list[int], way: Way, network: ClusterNetwork
) -> Iterator[tuple[int, int]]:
    """Yield the pairs of members of two nodes in which one sends to the other. Members are paired
    one to one. Only an all-to-all that leaves its rails (without PXN) sends between all pairs."""
    if way == PAIRS and network.rails and not network.pxn:
        yield from product(here, there)
        return
    for channel in range(max(len(here), len(there))):
        yield here[channel % len(here)], there[channel % len(there)]


def _between(
    nodes: tuple[int, ...], network: ClusterNetwork, way: Way
) -> Iterator[tuple[int, int, float]]:
    """Yield source node, target node and the bytes between them, as a share of the bytes that the
    busiest node sends.

    If rings follow the cables, each ring has an equal share; a ring of some nodes visits them
    in the order of the ring of all nodes.
    """
    if way != RINGS:
        yield from ((nodes[a], nodes[b], share) for a, b, share in _shares(way, len(nodes)))
        return
    rings, members = orders(network) or (nodes,), set(nodes)
    for ring in rings:
        passed = [node for node in ring if node in members]
        for a, b in zip(passed, [*passed[1:], passed[0]], strict=True):
            yield a, b, 1.0 / len(rings)


@cache
def _shares(way: Way, nodes: int) -> tuple[tuple[int, int, float], ...]:
    """The bytes from node to node by a way's rounds, as shares of the busiest node's bytes."""
    from sim.collectives.readings import condense

    rounds = getattr(algorithms()[way[0]], kinds_of(way)[0])
    edges = condense(rounds(nodes)).edges
    sent = [0.0] * nodes
    for a, _, load in edges:
        sent[a] += load
    busiest = max(sent)
    return tuple((a, b, load / busiest) for a, b, load in edges)
