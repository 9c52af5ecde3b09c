"""The ways of collectives over cables: which node sends how much to which other node?"""

from functools import cache
from typing import TYPE_CHECKING

from sim.collectives.schedule import CollectiveKind, algorithms, offered
from sim.config.errors import InputError
from sim.hardware.cluster.network import ClusterNetwork
from sim.hardware.cluster.pods import PodNetwork
from sim.hardware.cluster.topology import Topology
from sim.program.operations import AUTO

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
    return tuple(way for way in dict.fromkeys(usual + more) if kinds_of(way))


def kinds_of(way: Way) -> list[CollectiveKind]:
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
    """The number of a collective's way among the ways of a network; 0 (rings) by default."""
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
    """Raise `InputError` if rings shall follow cables that form no ring (of three or more
    nodes)."""
    network = topology.network
    if network is not None and network.spread and topology.nodes > 2 and not orders(network):
        fault = "spread = true, but no ring through all its nodes was found on its cables"
        raise InputError(f"topology {topology.name}, network", fault, "leave spread out")
