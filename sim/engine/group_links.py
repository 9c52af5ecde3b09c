"""The links that groups of ranks load, as numbers, and how much each group loads them.

On switched clusters a group loads the ports, NICs and pod uplinks of its members, which is
arithmetic on arrays. Over cables the routes of all hops are summed (`sim.engine.cable_routes`).
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.collectives.schedule import GroupShape
from sim.engine.cable_routes import EVERY, PAIRS, Hop, hops, number_of, ways
from sim.hardware.cluster.host import HOST_LINKS, STORAGE_LINKS
from sim.hardware.cluster.topology import Link, Topology
from sim.program.operations import HostLink

Indices = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


class Loads(NamedTuple):
    """Loads as arrays of equal length. A call of `group` puts `port` x (bytes through a member's
    port) + `nic` x (bytes that leave a node) on `link`, see `CallCost`. `nic` has a column for each
    way between nodes (`sim.engine.cable_routes`)."""

    group: Indices
    link: Indices
    port: Floats
    nic: Floats


class Spread(NamedTuple):
    """For each member of a group, the number of ranks for which it stands, and of their pods."""

    ranks: Indices
    pods: Indices


_KINDS = (
    "port-up", "port-down", "nic-up", "nic-down", "pod-up", "pod-down", "workers",
    *HOST_LINKS, *STORAGE_LINKS,
)  # fmt: skip
_ROOM = 1 << 40  # more links than any kind has


class GroupLinks:
    """Links as numbers: kind x `_ROOM` + place. All cables are one further kind, whose places count
    them in the order of first use."""

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
        self._cables: dict[Link, int] = {}
        self._named: list[Link] = []

    def name(self, number: int) -> Link:
        """The link with a number."""
        kind, place = divmod(number, _ROOM)
        if kind == len(_KINDS):
            return self._named[place]
        if _KINDS[kind].startswith("nic"):
            return (_KINDS[kind], *divmod(place, max(self.nics, 1)))
        if _KINDS[kind].startswith("pcie"):
            return (_KINDS[kind], *divmod(place, self.slots))
        return (_KINDS[kind], place)

    def of_members(
        self,
        own: Indices,
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
            own * (int(node.max(initial=0)) + 1) + node, return_inverse=True, return_counts=True
        )
        near = counts[inverse]
        inner, outer = near > 1, across & (self.nics > 0)
        share = 1.0 / near
        nic = node * max(self.nics, 1) + self.nic_of_slot[gpus % self.slots] if self.nics else node
        parts = []
        for way, taking_part in (("up", sends), ("down", receives)):
            some = inner & taking_part
            parts.append(self._part(f"port-{way}", own[some], gpus[some], 1.0, 0.0))
            some = outer & taking_part
            parts.append(self._part(f"nic-{way}", own[some], nic[some], 0.0, share[some]))
            if self.behind_port:
                parts.append(self._part(f"port-{way}", own[some], gpus[some], 0.0, share[some]))
            if self.behind_pcie:
                links = self._places("pcie", gpus[some])
                parts.append(self._part(f"pcie-{way}", own[some], links, 0.0, share[some]))
            if self.topology.pods > 1:
                parts.append(self._uplinks(f"pod-{way}", own, node, spread, taking_part))
        return _summed(parts)

    def common(self, kind: str) -> bool:
        """Whether links of a kind lie above the nodes, so several nodes load the same link."""
        storage = self.topology.storage
        of_storage = kind.startswith(("storage", "operations")) and storage and storage.shared
        return bool(of_storage) or kind.startswith("pod")

    def of_hosts(
        self,
        own: Indices,
        gpus: Indices,
        path: Sequence[HostLink],
        loads: Sequence[float],
        pods: Indices,
    ) -> Loads:
        """The loads of copies to hosts. Each byte of a copy puts `loads` bytes on the links of
        `path`. A device that reaches its host through a port of its node's fabric loads the port,
        too. `pods` is the number of pods with ranks for which each rank stands."""
        parts = []
        for kind, load in zip(path, loads, strict=True):
            size = load / pods if kind.startswith("pod") else load
            parts.append(self._part(kind, own, self._places(kind, gpus), size, 0.0))
            if kind.startswith("pcie") and self.behind_port:
                parts.append(self._part(f"port-{kind[5:]}", own, gpus, load, 0.0))
        return _summed(parts)

    def _places(self, kind: str, gpus: Indices) -> Indices:
        """The place of each GPU's link among the links of a kind."""
        node = gpus // self.slots
        match kind.partition("-")[0]:
            case "workers":
                return gpus
            case "pcie":
                links = map(self.topology.host_link_of, gpus.tolist())
                return np.array([node * self.slots + j for node, j in links], dtype=np.int64)
            case "nic":
                return node * max(self.nics, 1) + self.nic_of_slot[gpus % self.slots]
            case "pod":
                return np.array([self.topology.pod_of(n) for n in node.tolist()], dtype=np.int64)
            case "storage" | "operations" if storage := self.topology.storage:
                return np.array([storage.place_of(n) for n in node.tolist()], dtype=np.int64)
        return node

    def _part(
        self, kind: str, own: Indices, place: Indices, port: float | Floats, nic: float | Floats
    ) -> Loads:
        link = _KINDS.index(kind) * _ROOM + place
        size = np.ones(len(own))
        return Loads(own, link, size * port, np.outer(size * nic, np.ones(len(self.ways))))

    def _uplinks(
        self, kind: str, own: Indices, node: Indices, spread: Spread, taking_part: Flags
    ) -> Loads:
        """The loads of groups on the uplinks of pods. In a ring, the bytes of a node cross a pod's
        uplinks once in each direction. If each of a group's N nodes sends to all others, each of
        the n nodes in a pod sends (N - n) / (N - 1) of its bytes out of the pod."""
        nodes, position = np.unique(node, return_inverse=True)
        pod = np.array([self.topology.pod_of(n) for n in nodes.tolist()])[position]
        room = int(pod.max(initial=0)) + 1
        pairs, first = np.unique(own * room + pod, return_index=True)
        spans = np.bincount(pairs // room, weights=spread.pods[first])
        some = np.unique((own * room + pod)[taking_part])
        groups, places = some // room, some % room
        _, one = np.unique(own * len(nodes) + position, return_index=True)  # of each node
        count = spread.ranks[one].astype(np.float64)
        whole = np.bincount(own[one], weights=count)[groups]
        here = np.bincount((own * room + pod)[one], weights=count / spread.pods[one])[some]
        crosses = spans[groups] > 1
        out = (here * (whole - here) / np.maximum(whole - 1.0, 1.0))[crosses]
        part = self._part(kind, groups[crosses], places[crosses], 0.0, 1.0)
        part.nic[:, self.ways.index(PAIRS)] = out
        return part

    def of_routes(self, routes: Iterable[tuple[int, Iterable[Hop]]]) -> Loads:
        """The loads of groups whose members send to each other by these hops, route by route."""
        paths = self.topology.network.paths if self.topology.network else 1
        rows = [
            (group, self._number(link), local * share / paths, (not local) * share / paths, way)
            for group, hop in routes
            for source, target, way, share in hop
            for local in [source // self.slots == target // self.slots]
            for path in range(paths)
            for link in self.topology.route(source, target, path)
        ]
        if not rows:
            return self.nothing
        group, link, port, nic, way = (np.array(column) for column in zip(*rows, strict=True))
        taken = (way[:, None] == np.arange(len(self.ways))) | (way[:, None] == EVERY)
        return _summed([Loads(group, link, port, nic[:, None] * taken)])

    @property
    def nothing(self) -> Loads:
        """The loads of no group."""
        none = np.empty(0, dtype=np.int64)
        return Loads(none, none, np.empty(0), np.empty((0, len(self.ways))))

    def _number(self, link: Link) -> int:
        kind, *place = link
        if kind in _KINDS:
            at = place[0] * max(self.nics, 1) + place[1] if kind.startswith("nic") else place[0]
            return _KINDS.index(kind) * _ROOM + at
        if link not in self._cables:
            self._cables[link] = len(self._named)
            self._named.append(link)
        return len(_KINDS) * _ROOM + self._cables[link]


def _summed(parts: Sequence[Loads]) -> Loads:
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


def shape_of(gpus: Sequence[int], topology: Topology) -> GroupShape:
    """The placement of a group of GPUs on nodes."""
    nodes = Counter(map(topology.node_of, gpus))
    extent, network = max(nodes) - min(nodes), topology.network
    return GroupShape(
        ranks=len(gpus),
        nodes=len(nodes),
        per_node=max(nodes.values()),
        beyond=network.beyond(len(nodes), extent, topology.whole) if network else 0.0,
    )


def group_loads(
    gpus: Sequence[int],
    topology: Topology,
    shape: GroupShape,
    kind: str = "all_reduce",
    algorithm: str = "ring",
) -> dict[Link, tuple[float, float]]:
    """For each link of one group, its bytes per byte through a port and per byte out of a node."""
    way = number_of(topology.network, kind, algorithm)
    links, members = GroupLinks(topology), np.array(gpus, dtype=np.int64)
    group = np.zeros_like(members)
    if topology.hierarchical:
        everybody = group == 0
        across = everybody if shape.nodes > 1 else ~everybody
        loads = links.of_members(
            group, members, across, Spread(group + 1, group + 1), everybody, everybody
        )
    else:
        loads = links.of_routes([(0, hops(gpus, topology, {kind}))])
    return {
        links.name(link): (port, nic)
        for link, port, nic in zip(
            loads.link.tolist(), loads.port.tolist(), loads.nic[:, way].tolist(), strict=True
        )
    }
