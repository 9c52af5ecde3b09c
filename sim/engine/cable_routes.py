"""The ways of collectives between cabled nodes: which node sends how much to which node?"""

from collections.abc import Collection, Iterator, Sequence
from functools import cache
from itertools import product
from typing import TYPE_CHECKING

from sim.collectives.schedule import CollectiveKind, algorithms, offered
from sim.config.errors import InputError
from sim.hardware.cluster.network import ClusterNetwork
from sim.hardware.cluster.pods import PodNetwork
from sim.hardware.cluster.topology import Topology
from sim.program.calls import AUTO

if TYPE_CHECKING:
    from sim.collectives.cable_rings import Cycle

Way = tuple[str, str]
"""An algorithm and a kind of collective, which stand for all calls that take the same way between
nodes."""

Hop = tuple[int, int, int, float]
"""Source GPU, target GPU, the number of the way (`EVERY` for all ways), and the hop's share of the
bytes that a member's port or a node's NICs carry."""

EVERY = -1
RINGS: Way = ("ring", "all_reduce")
PAIRS: Way = ("direct", "all_to_all")
_SAME = {"nvls": "tree", "nvls_tree": "tree", "relayed": "direct", "hierarchical": "ring"}


@cache
def ways(network: ClusterNetwork | None) -> tuple[Way, ...]:
    """All ways between nodes that collectives may take. On switches every way loads NICs alike, so
    only the uplinks of pods tell rings and pairs apart."""
    if network is None or not network.cabled:
        shared = isinstance(network, PodNetwork) and network.has_pods
        return (RINGS, PAIRS) if shared else (RINGS,)
    named = dict.fromkeys(name for rule in network.algorithm for name in rule.use if name != AUTO)
    usual = [RINGS, ("tree", "all_reduce"), PAIRS]
    more = [way_of(kind, name) for name in named for kind in ("all_reduce", "all_to_all")]
    return tuple(way for way in dict.fromkeys(usual + more) if _offered(way))


def _offered(way: Way) -> list[CollectiveKind]:
    """The kinds of collectives for which a way's algorithm is offered and that take this way."""
    name, kind = way
    mine = (candidate for candidate in offered(algorithms()[name]) if candidate != "point_to_point")
    return [candidate for candidate in mine if way_of(candidate, name) == (name, kind)]


def way_of(kind: str, algorithm: str) -> Way:
    """The way of a collective. All kinds but all-to-alls take the way of an all-reduce.

    >>> way_of("all_gather", "hierarchical"), way_of("all_to_all", "hierarchical")
    (('ring', 'all_reduce'), ('direct', 'all_to_all'))
    """
    name = _SAME.get(algorithm, algorithm)
    if kind == "all_to_all":
        return ("direct" if name == "ring" else name), kind
    return name, "all_reduce"


def number_of(network: ClusterNetwork | None, kind: str, algorithm: str) -> int:
    """The number of a collective's way among the ways of a network; 0 (rings) if it is not
    there."""
    known, way = ways(network), way_of(kind, algorithm)
    return known.index(way) if way in known else 0


@cache
def orders(network: ClusterNetwork) -> "tuple[Cycle, ...]":
    """The rings that follow the cables of a network, in both directions. The result is empty if
    rings follow the order of ranks instead."""
    if not network.spread:
        return ()
    from sim.collectives.cable_rings import cycles
    from sim.hardware.cluster.cabled import NodeCables

    assert isinstance(network, NodeCables)
    found = cycles(network.mesh())
    return (*found, *(tuple(reversed(cycle)) for cycle in found))


def check_orders(topology: Topology) -> None:
    """Raise `InputError` if rings are to follow cables of three or more nodes without a ring."""
    network = topology.network
    if network is not None and network.spread and topology.nodes > 2 and not orders(network):
        fault = "spread = true, but no ring through all its nodes was found on its cables"
        raise InputError(f"topology {topology.name}, network", fault, "leave spread out")


def hops(gpus: Sequence[int], topology: Topology, kinds: Collection[str]) -> Iterator[Hop]:
    """Yield the hops of collectives of some `kinds` among GPUs.

    Inside a node a ring passes the members one after the other. Between two nodes, the channels
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
    one to one. Only an all-to-all that leaves its rails (without PXN) sends from all to all."""
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

    If rings follow the cables, each ring has an equal share; a ring of some nodes passes them in
    the order of the ring of all nodes.
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

    rounds = getattr(algorithms()[way[0]], _offered(way)[0])
    edges = condense(rounds(nodes)).edges
    sent = [0.0] * nodes
    for a, _, load in edges:
        sent[a] += load
    busiest = max(sent)
    return tuple((a, b, load / busiest) for a, b, load in edges)
