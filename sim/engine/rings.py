"""The hops of collectives over cables that are told apart: rings in nodes, and between them."""

from collections.abc import Iterator, Sequence
from functools import cache

from sim.collectives.cable_rings import Cycle, cycles
from sim.config.errors import InputError
from sim.hardware.cluster.cabled import NodeCables
from sim.hardware.cluster.network import ClusterNetwork
from sim.hardware.cluster.topology import Topology
from sim.program.selection import AUTO

Hop = tuple[int, int, float]
"""From one GPU to another, with a share of what the wire or the NICs of a node carry."""


@cache
def orders(network: ClusterNetwork) -> tuple[Cycle, ...]:
    """The rings that follow the cables of a network, in both directions; () in the order of ranks.

    Two nodes are a ring in any order.
    """
    if not (isinstance(network, NodeCables) and network.spread):
        return ()
    found = cycles(network.mesh())
    return (*found, *(tuple(reversed(cycle)) for cycle in found))


def check_ways(topology: Topology) -> None:
    """Raise `InputError` where rings find no cables, or collectives would not go along rings."""
    network, where = topology.network, f"topology {topology.name}, network"
    if network is None or not network.cabled:
        return
    if network.spread and topology.nodes > 2 and not orders(network):
        what = "spread = true, but no ring through all its nodes was found on its cables"
        raise InputError(where, what, "leave spread out")
    for name in (name for rule in network.algorithm for name in rule.use):
        if name not in (AUTO, "ring", "hierarchical"):
            what = f"algorithm {name!r} has no known ways over the cables of a {network.shape}"
            raise InputError(where, what, "choose ring or hierarchical, whose rings follow them")


def hops(gpus: Sequence[int], topology: Topology) -> Iterator[Hop]:
    """The hops of a group's rings.

    Inside a node a ring passes its members one after the other. Between nodes it leaves at each
    member in turn, as NCCL's channels do, and so spreads over their NICs; where rings follow the
    cables, each has an equal share, and a group of some of the nodes passes them in the same order.
    """
    nodes: dict[int, list[int]] = {}
    for gpu in gpus:
        nodes.setdefault(topology.node_of(gpu), []).append(gpu)
    closed = len(nodes) == 1 or topology.node is None or topology.node.ports
    for members in nodes.values():
        following = [*members[1:], members[0]] if closed else members[1:]
        yield from ((a, b, 1.0) for a, b in zip(members, following, strict=False) if a != b)
    if len(nodes) > 1 and topology.network is not None:
        rings = orders(topology.network) or (tuple(nodes),)
        for ring in rings:
            passed = [nodes[node] for node in ring if node in nodes]
            for here, there in zip(passed, [*passed[1:], passed[0]], strict=True):
                width = max(len(here), len(there))
                for channel in range(width):
                    source, target = here[channel % len(here)], there[channel % len(there)]
                    yield source, target, 1.0 / (width * len(rings))
