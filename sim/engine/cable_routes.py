"""The ways of collectives over cables that are told apart: who sends how much to whom."""

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
"""An algorithm and a collective: those that differ take different ways between nodes."""

Hop = tuple[int, int, int, float]
"""From one GPU to another, the number of the way (`EVERY` for all of them), with a share of what
the wire or the NICs of a node carry."""

EVERY = -1
RINGS: Way = ("ring", "all_reduce")
PAIRS: Way = ("direct", "all_to_all")
_SAME = {"nvls": "tree", "nvls_tree": "tree", "relayed": "direct", "hierarchical": "ring"}


@cache
def ways(network: ClusterNetwork | None) -> tuple[Way, ...]:
    """All ways between nodes that collectives may take: on switches every way loads NICs alike, and
    pods that share uplinks as rings do or as pairs."""
    if network is None or not network.cabled:
        shared = isinstance(network, PodNetwork) and network.has_pods
        return (RINGS, PAIRS) if shared else (RINGS,)
    named = dict.fromkeys(name for rule in network.algorithm for name in rule.use if name != AUTO)
    usual = [RINGS, ("tree", "all_reduce"), PAIRS]
    more = [way_of(kind, name) for name in named for kind in ("all_reduce", "all_to_all")]
    return tuple(way for way in dict.fromkeys(usual + more) if _offered(way))


def _offered(way: Way) -> list[CollectiveKind]:
    """The collectives of an algorithm that take a way."""
    name, kind = way
    mine = (candidate for candidate in offered(algorithms()[name]) if candidate != "point_to_point")
    return [candidate for candidate in mine if way_of(candidate, name) == (name, kind)]


def way_of(kind: str, algorithm: str) -> Way:
    """The way of a collective. Halves of an all-reduce take its way, trees from a root too.

    >>> way_of("all_gather", "hierarchical"), way_of("all_to_all", "hierarchical")
    (('ring', 'all_reduce'), ('direct', 'all_to_all'))
    """
    name = _SAME.get(algorithm, algorithm)
    if kind == "all_to_all":
        return ("direct" if name == "ring" else name), kind
    return name, "all_reduce"


def number_of(network: ClusterNetwork | None, kind: str, algorithm: str) -> int:
    """The number of a collective's way among those of a network; that of rings where unknown."""
    known, way = ways(network), way_of(kind, algorithm)
    return known.index(way) if way in known else 0


@cache
def orders(network: ClusterNetwork) -> "tuple[Cycle, ...]":
    """The rings that follow the cables of a network, in both directions; () in the order of ranks.

    Two nodes are a ring in any order.
    """
    if not network.spread:
        return ()
    from sim.collectives.cable_rings import cycles
    from sim.hardware.cluster.cabled import NodeCables

    assert isinstance(network, NodeCables)
    found = cycles(network.mesh())
    return (*found, *(tuple(reversed(cycle)) for cycle in found))


def check_orders(topology: Topology) -> None:
    """Raise `InputError` where rings are to follow cables that lead through no ring."""
    network = topology.network
    if network is not None and network.spread and topology.nodes > 2 and not orders(network):
        fault = "spread = true, but no ring through all its nodes was found on its cables"
        raise InputError(f"topology {topology.name}, network", fault, "leave spread out")


def hops(gpus: Sequence[int], topology: Topology, kinds: Collection[str]) -> Iterator[Hop]:
    """The hops of collectives of some kinds.

    Inside a node a ring passes its members one after the other. Between nodes what one sends
    another leaves at each member in turn, as NCCL's channels do, and so spreads over their NICs.
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
    """The members of two nodes that send to one another: as many as there are, one to one; all of
    them to all where items of an all-to-all stay on the rail of their source."""
    if way == PAIRS and network.rails and not network.pxn:
        yield from product(here, there)
        return
    for channel in range(max(len(here), len(there))):
        yield here[channel % len(here)], there[channel % len(there)]


def _between(
    nodes: tuple[int, ...], network: ClusterNetwork, way: Way
) -> Iterator[tuple[int, int, float]]:
    """From node to node, with its share of what the busiest node sends.

    Where rings follow the cables, each has an equal share, and some of the nodes are passed in the
    order of all.
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
    """Bytes that its rounds among so many nodes send from one to another, as shares."""
    from sim.collectives.readings import condense

    rounds = getattr(algorithms()[way[0]], _offered(way)[0])
    edges = condense(rounds(nodes)).edges
    sent = [0.0] * nodes
    for a, _, load in edges:
        sent[a] += load
    busiest = max(sent)
    return tuple((a, b, load / busiest) for a, b, load in edges)
