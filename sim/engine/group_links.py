"""The links that groups of ranks load, as numbers, and how much each group loads them.

On switched clusters a group loads the ports, NICs and pod uplinks of its members, which is
arithmetic on arrays (`sim.engine.cabled_links` has networks of cables). Collectives that cross the
network between nodes in the same way share a number.
"""

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.collectives.schedule import CollectiveKind, algorithms, offered
from sim.config.errors import InputError
from sim.hardware.cluster.host import HOST_LINKS, STORAGE_LINKS
from sim.hardware.cluster.network import ClusterNetwork
from sim.hardware.cluster.pods import PodNetwork
from sim.hardware.cluster.topology import Link, Topology
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
    """The kinds of collectives that a way's algorithm offers and that take this way."""
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
    """Raise `InputError` if rings should follow cables, but no ring of the (three or more) nodes is
    found."""
    network = topology.network
    if network is not None and network.spread and topology.nodes > 2 and not orders(network):
        fault = "spread = true, but no ring through all nodes was found on the cables"
        raise InputError(f"topology {topology.name}, network", fault, "leave spread out")


Indices = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


class Loads(NamedTuple):
    """Loads as arrays of equal length. A call of `group` puts `port` x (bytes through a member's
    port) + `nic` x (bytes that leave a node) on `link`, see `CallCost`. `nic` has a column for each
    way between nodes (`sim.engine.group_links`)."""

    group: Indices
    link: Indices
    port: Floats
    nic: Floats


class Spread(NamedTuple):
    """For each member of a group, how many ranks it stands for, and how many pods have them."""

    ranks: Indices
    pods: Indices


KINDS = (
    "port-up", "port-down", "nic-up", "nic-down", "pod-up", "pod-down", "workers",
    *HOST_LINKS, *STORAGE_LINKS,
)  # fmt: skip
ROOM = 1 << 40  # more links than any kind has


class GroupLinks:
    """Links as numbers: kind x `ROOM` + place."""

    def __init__(self, topology: Topology, *, copies: bool = False) -> None:
        """`copies` says whether copies to hosts use the PCIe links that messages use, too."""
        self.topology = topology
        network, direct = topology.network, topology.host is not None and topology.host.gpudirect
        narrow = network is not None and topology.nic_bandwidth < network.bandwidth
        self.behind_pcie = direct and (copies or narrow)
        self.slots = topology.gpus_per_node
        self.behind_port = topology.node is not None and topology.node.network_through_ports
        self.nics = topology.network.nics if topology.network is not None else 0
        used = range(min(topology.gpus, self.slots)) if self.nics else ()
        self.nic_of_slot = np.array([topology.nic_of(slot)[1] for slot in used], dtype=np.int64)
        self.ways = ways(topology.network)

    def name(self, number: int) -> Link:
        """The link with a number."""
        kind, place = divmod(number, ROOM)
        if KINDS[kind].startswith("nic"):
            return (KINDS[kind], *divmod(place, max(self.nics, 1)))
        if KINDS[kind].startswith("pcie"):
            return (KINDS[kind], *divmod(place, self.slots))
        return (KINDS[kind], place)

    def of_members(
        self,
        groups: Indices,
        gpus: Indices,
        across: Flags,
        spread: Spread,
        sends: Flags,
        receives: Flags,
    ) -> Loads:
        """The loads of groups on switches. Ports carry the bytes that stay in a node; the members
        in a node share the bytes that leave it over their NICs."""
        node = gpus // self.slots
        _, inverse, counts = np.unique(
            groups * (int(node.max(initial=0)) + 1) + node, return_inverse=True, return_counts=True
        )
        near = counts[inverse]
        inner, outer = near > 1, across & (self.nics > 0)
        share = 1.0 / near
        nic = node * max(self.nics, 1) + self.nic_of_slot[gpus % self.slots] if self.nics else node
        parts = []
        for way, taking_part in (("up", sends), ("down", receives)):
            some = inner & taking_part
            parts.append(self.part(f"port-{way}", groups[some], gpus[some], 1.0, 0.0))
            some = outer & taking_part
            parts.append(self.part(f"nic-{way}", groups[some], nic[some], 0.0, share[some]))
            if self.behind_port:
                parts.append(self.part(f"port-{way}", groups[some], gpus[some], 0.0, share[some]))
            if self.behind_pcie:
                links = self.pcie(gpus[some])
                parts.append(self.part(f"pcie-{way}", groups[some], links, 0.0, share[some]))
            if self.topology.pods > 1:
                parts.append(self._uplinks(f"pod-{way}", groups, node, spread, taking_part))
        return summed(parts)

    def common(self, kind: str) -> bool:
        """Whether links of a kind lie above the nodes, so several nodes load the same link."""
        storage = self.topology.storage
        of_storage = kind.startswith(("storage", "operations")) and storage and storage.shared
        return bool(of_storage) or kind.startswith("pod")

    def pcie(self, gpus: Indices) -> Indices:
        """The place of each GPU's PCIe link."""
        links = map(self.topology.host_link_of, gpus.tolist())
        return np.array([node * self.slots + j for node, j in links], dtype=np.int64)

    def part(
        self, kind: str, groups: Indices, place: Indices, port: float | Floats, nic: float | Floats
    ) -> Loads:
        link = KINDS.index(kind) * ROOM + place
        size = np.ones(len(groups))
        return Loads(groups, link, size * port, np.outer(size * nic, np.ones(len(self.ways))))

    def _uplinks(
        self, kind: str, group: Indices, node: Indices, spread: Spread, taking_part: Flags
    ) -> Loads:
        """The loads of groups on the uplinks of pods. In a ring, the bytes of a node cross a pod's
        uplinks once in each direction. If all N nodes of a group send to each other,
        each of the n nodes in a pod sends (N - n) / (N - 1) of its bytes out of the pod."""
        nodes, position = np.unique(node, return_inverse=True)
        pod = np.array([self.topology.pod_of(n) for n in nodes.tolist()])[position]
        room = int(pod.max(initial=0)) + 1
        pairs, first = np.unique(group * room + pod, return_index=True)
        spans = np.bincount(pairs // room, weights=spread.pods[first])
        some = np.unique((group * room + pod)[taking_part])
        groups, places = some // room, some % room
        _, once = np.unique(group * len(nodes) + position, return_index=True)  # of each node
        count = spread.ranks[once].astype(np.float64)
        whole = np.bincount(group[once], weights=count)[groups]
        here = np.bincount((group * room + pod)[once], weights=count / spread.pods[once])[some]
        crosses = spans[groups] > 1
        out = (here * (whole - here) / np.maximum(whole - 1.0, 1.0))[crosses]
        part = self.part(kind, groups[crosses], places[crosses], 0.0, 1.0)
        part.nic[:, self.ways.index(PAIRS)] = out
        return part

    @property
    def nothing(self) -> Loads:
        """The loads of no group."""
        none = np.empty(0, dtype=np.int64)
        return Loads(none, none, np.empty(0), np.empty((0, len(self.ways))))


def summed(parts: Sequence[Loads]) -> Loads:
    """Sum the rows of loads that have the same group and link."""
    group, link, port, nic = (np.concatenate(column) for column in zip(*parts, strict=True))
    if not len(group):
        return Loads(group, link, port, nic)
    order = np.lexsort((link, group))
    group, link, port, nic = group[order], link[order], port[order], nic[order]
    first = np.concatenate(([True], (np.diff(group) != 0) | (np.diff(link) != 0)))
    starts = np.flatnonzero(first)
    return Loads(
        group[starts], link[starts], np.add.reduceat(port, starts), np.add.reduceat(nic, starts, 0)
    )
