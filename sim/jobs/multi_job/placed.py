"""A job's own view of the cluster: its GPUs are numbered from 0, its links lead to real switches.

A placed network only has the job's nodes. Links above the nodes (uplinks of pods, stores, cables)
keep their names in the cluster; links of a node or a GPU have the job's own numbers, which
`Place.link` translates.
"""

from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache, cached_property
from typing import Any

from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.engine.machine import Machine
from sim.hardware.cluster.link_names import link_name
from sim.hardware.cluster.network import ClusterNetwork, Link, Route
from sim.hardware.cluster.storage import Storage
from sim.hardware.cluster.topology import Degraded, Topology

_OF_NODE = ("memory", "nvme", "cores", "client")  # kinds of links that every node has once
STORES = ("storage-up", "storage-down", "operations")


@dataclass(frozen=True)
class Place:
    """The GPUs of a job in its cluster: `slots` of each of its `nodes`, in order."""

    cluster: Topology
    nodes: tuple[int, ...]
    slots: tuple[int, ...]

    @property
    def gpus(self) -> tuple[int, ...]:
        """The cluster's number of the GPU of each rank of the job."""
        each = self.cluster.gpus_per_node
        return tuple(node * each + slot for node in self.nodes for slot in self.slots)

    def link(self, link: Link) -> Link:
        """The cluster's name of a link that the job calls `link`."""
        return _renamed(link, self.nodes.__getitem__, self._gpu, self._pcie)

    def own(self, link: Link) -> Link:
        """The job's own name of a link of the cluster: the inverse of `link`."""
        return _renamed(link, self._number.__getitem__, self._rank, -self._pcie)

    def alike(self, link: Link) -> Link:
        """The job's own name of a link of the cluster, with pods and stores numbered in the order
        of its nodes. So the name is equal in all places with the same pattern."""
        match self.own(link):
            case (str(kind), int(place)) if kind in STORES:
                return kind, self._come_to[1][place]
            case (str(kind), int(place)) if kind.startswith("pod"):
                return kind, self._come_to[0][place]
            case own:
                return own

    def topology(self) -> Topology:
        """The cluster as the job sees it, including degraded links. Raises `InputError`."""
        topology = replace(self.cluster, degraded=()).with_gpus(len(self.nodes) * len(self.slots))
        if topology.network is not None and len(self.nodes) > 1:
            topology = replace(topology, network=_placed(topology.network, self.nodes))
        if topology.storage is not None:
            given = {f.name: getattr(topology.storage, f.name) for f in fields(topology.storage)}
            topology = replace(topology, storage=_PlacedStorage(**given, of_nodes=self.nodes))
        degraded = tuple(self._degraded(topology))
        return replace(topology, degraded=degraded) if degraded else topology

    def machine(self, cluster: Machine, topology: Topology) -> Machine:
        """The cluster's machine as the job sees it, slow GPUs included."""
        slow = cluster.slowdown
        ranks = {rank: slow[gpu] for rank, gpu in enumerate(self.gpus) if gpu in slow}
        return replace(cluster, topology=topology, slowdown=ranks)

    def _gpu(self, rank: int) -> int:
        node, slot = divmod(rank, len(self.slots))
        return self.nodes[node] * self.cluster.gpus_per_node + self.slots[slot]

    def _rank(self, gpu: int) -> int:
        node, slot = divmod(gpu, self.cluster.gpus_per_node)
        return self._number[node] * len(self.slots) + self.slots.index(slot)

    @cached_property
    def _number(self) -> dict[int, int]:
        """The job's number of each of its nodes."""
        return {node: number for number, node in enumerate(self.nodes)}

    @cached_property
    def _come_to(self) -> tuple[dict[int, int], dict[int, int]]:
        """New numbers of pods and of stores, in the order in which the job's nodes use them."""
        numbers: tuple[dict[int, int], dict[int, int]] = {}, {}
        for node in self.nodes:
            for known, of in zip(
                numbers, (self.cluster.pod_of, self.cluster.store_of), strict=True
            ):
                known.setdefault(of(node), len(known))
        return numbers

    @property
    def _pcie(self) -> int:
        """The number of the PCIe link of the first slot."""
        return self.cluster.host_link_of(self.slots[0])[1] if self.cluster.host else 0

    def _degraded(self, topology: Topology) -> "list[Degraded]":
        sick = {
            link: slow.factor
            for slow in self.cluster.degraded
            for link in self.cluster.parse_link(slow.link)
        }
        if not sick:
            return []
        return [
            Degraded(link=link_name(link), factor=sick[self.link(link)])
            for link in topology.links
            if self.link(link) in sick
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlacedStorage(Storage):
    """The stores of a cluster, as a job on some of its nodes sees them."""

    of_nodes: tuple[int, ...] = ()

    def place_of(self, node: int) -> int:
        return Storage.place_of(self, self.of_nodes[node]) if self.remote else node


def _renamed(
    link: Link, node_of: Callable[[int], int], gpu_of: Callable[[int], int], pcie: int
) -> Link:
    """Rename a link to the numbers of other nodes and GPUs, and add `pcie` to the number of a PCIe
    link. Links above the nodes keep their names."""
    match link:
        case ("port-up" | "port-down" | "workers" as kind, gpu):
            return kind, gpu_of(gpu)
        case ("nvlink", a, b):
            return "nvlink", gpu_of(a), gpu_of(b)
        case ("nic-up" | "nic-down" as kind, node, nic):
            return kind, node_of(node), nic
        case ("pcie-up" | "pcie-down" as kind, node, number):
            return kind, node_of(node), number + pcie
        case (kind, node) if str(kind).startswith(_OF_NODE):
            return kind, node_of(node)
    return link


def _placed(network: ClusterNetwork, nodes: tuple[int, ...]) -> ClusterNetwork:
    """A network as a job on some of its nodes sees it. Raises `InputError` if rings follow the
    cables of all nodes."""
    if network.spread:
        fault = "rings follow the cables of the whole network (spread = true)"
        raise InputError("job", fault, "leave spread out, or give the network to a single job")
    given = {f.name: getattr(network, f.name) for f in fields(network) if f.init}
    shape: Any = type(network)
    made: ClusterNetwork = _class_of(shape)(**given, nodes=nodes)
    return made


@cache
def _class_of(kind: Any) -> Any:
    """The class of placed networks for a class of networks."""

    @dataclass(frozen=True, kw_only=True)
    class Placed(kind):  # type: ignore[misc]
        """A network of which a job has some `nodes`."""

        nodes: tuple[int, ...] = ()

        def pod_of(self, node: int) -> int:
            if (
                node >= len(self.nodes)
                and len({super(Placed, self).pod_of(n) for n in self.nodes}) == 1
            ):
                return int(super().pod_of(self.nodes[0]))  # a server's host, in the workers' pod
            return int(super().pod_of(self._at(node)))

        @property
        def stretch(self) -> float:
            return (max(self.nodes) - min(self.nodes) + 1) / len(self.nodes)

        def above(self, source: int, target: int, whole: int) -> float:
            return float(super().above(self._at(source), self._at(target), whole))

        def route(
            self, source: int, target: int, nics: tuple[int, int] = (0, 0), path: int = 0
        ) -> Route:
            ends = self._at(source), self._at(target)
            return tuple(super().route(*ends, nics, path))

        def _at(self, node: int) -> int:
            if node >= len(self.nodes):
                fault = "has servers on hosts beyond its nodes"
                raise InputError("job", fault, "place it within a pod, or its servers on its nodes")
            return self.nodes[node]

        def check(self, nodes: int, slots: int) -> None:
            super().check(max(self.nodes) + 1, slots)

    return Placed
