"""A cluster: devices in nodes, nodes in a network, and the links that join them.

Everything is answered by arithmetic when it is asked for: a cluster of 65,536 devices costs
nothing until a route is wanted, and then only that route.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from math import isfinite
from pathlib import Path
from typing import Any

from sim import library
from sim.errors import InputError
from sim.hardware import device as devices
from sim.hardware import graph
from sim.hardware.device import Device
from sim.hardware.fabric import Fabric
from sim.hardware.link import FORMS, Link, link_name, links_named
from sim.hardware.network import Network

__all__ = ["Degraded", "Link", "Topology", "link_name", "load"]

Route = tuple[Link, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Degraded:
    """A link (see `Topology.parse_link`) whose capacity is divided by `factor`."""

    link: str
    factor: float

    def __post_init__(self) -> None:
        if not (isfinite(self.factor) and self.factor > 0):
            raise ValueError(f"factor = {self.factor} must be positive; 2 halves the bandwidth")


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """`gpus` devices, `gpus_per_node` to a node, joined by `node` inside and `network` outside.

    Links are tuples, see `sim.hardware.link`. GPUs are numbered node after node; the last node
    may be partly used only if it is the only one. `network` is None for a single node.
    """

    name: str
    device: Device
    gpus: int
    gpus_per_node: int
    node: Fabric | None = None
    network: Network | None = None
    degraded: tuple[Degraded, ...] = ()

    def __post_init__(self) -> None:
        if self.gpus < 1 or self.gpus_per_node < 1:
            raise ValueError("gpus and gpus_per_node must be at least 1")
        if self.gpus > self.gpus_per_node and self.gpus % self.gpus_per_node:
            low = self.gpus // self.gpus_per_node * self.gpus_per_node
            raise ValueError(
                f"{self.gpus} GPUs do not fill nodes of {self.gpus_per_node}; "
                f"use {low} or {low + self.gpus_per_node}"
            )
        if self.node is None and self.gpus_per_node > 1:
            raise ValueError(
                f"nothing joins the {self.gpus_per_node} GPUs of a node; add a [node] table"
            )
        self._check_network()
        self._check_reachable()
        for one in self.degraded:
            self.parse_link(one.link)

    def _check_network(self) -> None:
        if self.network is None:
            if self.nodes > 1:
                raise ValueError(
                    f"nothing joins its {self.nodes} nodes; use at most {self.gpus_per_node} GPUs "
                    "or add a [network] table"
                )
            return
        if self.network.largest is not None and self.nodes > self.network.largest:
            raise ValueError(
                f"its {self.network.shape} has room for {self.network.largest} nodes, not "
                f"{self.nodes}; use at most {self.network.largest * self.gpus_per_node} GPUs"
            )
        if len(self.network.nic_of_slot) not in (0, self.gpus_per_node):
            raise ValueError(f"nic_of_slot needs {self.gpus_per_node} entries, one for each slot")

    def _check_reachable(self) -> None:
        fabric, network, slots = self.node, self.network, self.gpus_per_node
        if fabric is not None and not fabric.switched:
            seen = graph.reachable(0, lambda slot: fabric.neighbours(slot, slots))
            if stray := [slot for slot in seen if slot >= slots]:
                raise ValueError(f"a cable leads to slot {min(stray)} of a node of {slots} GPUs")
            if lost := set(range(slots)) - seen:
                raise ValueError(f"no path leads from gpu 0 to gpu {min(lost)}; add a cable to it")
        if network is None or network.shape != "graph":
            return
        if lost := set(range(network.size)) - graph.reachable(0, network.neighbours):
            raise ValueError(
                f"no path leads from node 0 to node {min(lost)} (gpu {min(lost) * slots}); "
                "add a cable to it"
            )

    # Where things are.

    @property
    def nodes(self) -> int:
        """Nodes in use."""
        return -(-self.gpus // self.gpus_per_node)

    @property
    def pods(self) -> int:
        """Pods in use; 1 where their uplinks cannot limit anything."""
        return self.pod_of(self.nodes - 1) + 1

    def node_of(self, gpu: int) -> int:
        """The node that holds a GPU."""
        return gpu // self.gpus_per_node

    def slot_of(self, gpu: int) -> int:
        """The GPU's place in its node."""
        return gpu % self.gpus_per_node

    def nic_of(self, gpu: int) -> tuple[int, int]:
        """(node, j): the NIC that a GPU uses; slots share the NICs of a node evenly."""
        if self.network is None or not self.network.nics:
            raise ValueError(f"{self.name} has no NICs")
        slot = self.slot_of(gpu)
        named = self.network.nic_of_slot
        j = named[slot] if named else slot * self.network.nics // self.gpus_per_node
        return self.node_of(gpu), j

    def pod_of(self, node: int) -> int:
        """The pod whose uplinks a node shares; 0 where they cannot limit anything."""
        network = self.network
        return node // network.nodes_per_pod if network is not None and network.has_pods else 0

    @property
    def switched_node(self) -> bool:
        """True where only ports limit the traffic inside a node."""
        return self.node is None or self.node.ports

    @property
    def hierarchical(self) -> bool:
        """True where all links are ports, NICs and pod uplinks, so that none is enumerated."""
        return self.switched_node and not (self.network is not None and self.network.cabled)

    # The same cluster, changed.

    def with_gpus(self, gpus: int) -> "Topology":
        """The same cluster with `gpus` of its devices in use, or grown to so many.

        Raises `InputError` where they do not fill whole nodes or the network has no room.
        """
        return self._changed(gpus=gpus)

    def slowed(self, link: str | Link, factor: float) -> "Topology":
        """The same cluster with the capacity of one link divided by `factor`.

        Raises `InputError` where there is no such link or the factor is not positive.
        """
        text = link if isinstance(link, str) else link_name(link)
        self.parse_link(text)
        try:
            sick = Degraded(link=text, factor=factor)
        except ValueError as error:
            raise InputError(f"link {text}", *str(error).split("; ")) from None
        return self._changed(degraded=(*self.degraded, sick))

    def _changed(self, **changes: Any) -> "Topology":
        try:
            return replace(self, **changes)
        except InputError:
            raise
        except ValueError as error:
            what, _, remedy = str(error).partition("; ")
            raise InputError(f"topology {self.name}", what, remedy) from None

    # Links.

    def route(self, source: int, target: int) -> Route:
        """The links that a message from GPU `source` to GPU `target` passes, in order.

        Up and down in trees, dimension-ordered on tori, minimal on dragonflies, else a shortest
        path. Deterministic.
        """
        if source == target:
            return ()
        if self.node_of(source) == self.node_of(target):
            return self._inside(source, target)
        assert self.network is not None  # more than one node: see `_check_network`
        relay = self._relay(source, target)
        behind_port = self.node is not None and self.node.fabric == "pcie"
        return (
            *(self._inside(source, relay) if relay != source else ()),
            *([("port-up", source)] if behind_port else ()),
            *self._between(self.network, relay, target),
            *([("port-down", target)] if behind_port else ()),
        )

    def _inside(self, source: int, target: int) -> Route:
        if self.node is None or self.node.ports:
            return (("port-up", source), ("port-down", target))
        first = source - self.slot_of(source)
        slots = self.node.path(self.slot_of(source), self.slot_of(target), self.gpus_per_node)
        return _cables("nvlink", [first + slot for slot in slots])

    def _relay(self, source: int, target: int) -> int:
        """The GPU of the source's node that hands the message to the network."""
        if self.network is None or self.network.shape != "rail-optimised":
            return source
        rail = self.nic_of(target)[1]
        if self.nic_of(source)[1] == rail or not (self.node and self.node.fabric == "nvswitch"):
            return source
        first = source - self.slot_of(source)
        peers = range(first, first + self.gpus_per_node)
        return next((gpu for gpu in peers if self.nic_of(gpu)[1] == rail), source)

    def _between(self, network: Network, source: int, target: int) -> Route:
        a, b = self.node_of(source), self.node_of(target)
        above: Route = ()
        if network.cabled:
            above = _cables("edge", network.path(network.vertex_of(a), network.vertex_of(b)))
        elif self.pod_of(a) != self.pod_of(b):
            above = (("pod-up", self.pod_of(a)), ("pod-down", self.pod_of(b)))
        if not network.nics:
            return above
        return (("nic-up", *self.nic_of(source)), *above, ("nic-down", *self.nic_of(target)))

    def capacity(self, link: Link) -> float:
        """B/s of payload that a link carries: bandwidth x efficiency, less where degraded."""
        return self._bandwidth(link) * self._of(link).efficiency / self._factor(link)

    def latency(self, link: Link) -> float:
        """Seconds that a link adds to a message; along a route they add up to the whole way."""
        part = self._of(link)
        match link[0]:
            case "nvlink":
                return part.latency
            case "edge" if not self._network.nics:
                return part.latency
            case "edge" | "pod-up" | "pod-down":
                return self._network.hop_latency
        return part.latency / 2  # a port or a NIC is half of the way

    def _bandwidth(self, link: Link) -> float:
        match link:
            case ("port-up" | "port-down", _) if self.node is not None:
                used = min(self.gpus, self.gpus_per_node)
                return self.node.port_bandwidth(self.gpus_per_node, used)
            case ("nvlink", a, b) if self.node is not None:
                return self.node.cable_bandwidth(
                    self.slot_of(a), self.slot_of(b), self.gpus_per_node
                )
            case ("nic-up" | "nic-down", _, _):
                return self._network.bandwidth
            case ("pod-up" | "pod-down", _):
                return self._network.pod_bandwidth
            case ("edge", a, b):
                return self._network.cable_bandwidth(a, b)
        raise ValueError(f"{self.name} has no link {link!r}")

    def _of(self, link: Link) -> Fabric | Network:
        inside = link[0].startswith("port") or link[0] == "nvlink"
        return self.node if inside and self.node is not None else self._network

    @property
    def _network(self) -> Network:
        if self.network is None:
            raise ValueError(f"{self.name} has no network")
        return self.network

    def _factor(self, link: Link) -> float:
        return _factors(self.degraded).get(link, 1.0) if self.degraded else 1.0

    @property
    def links(self) -> Iterator[Link]:
        """All links, one by one; take care not to ask a large cluster."""
        fabric, network = self.node, self.network
        for gpu in range(self.gpus):
            if fabric is not None and fabric.ports and self.gpus_per_node > 1:
                yield from ((way, gpu) for way in ("port-up", "port-down"))
            elif fabric is not None:
                first = gpu - self.slot_of(gpu)
                to = fabric.neighbours(gpu - first, self.gpus_per_node)
                yield from (
                    ("nvlink", gpu, first + slot) for slot in to if first + slot < self.gpus
                )
        if network is not None:
            ways: tuple[str, ...] = ("nic-up", "nic-down")
            yield from (
                (way, n, j) for n in range(self.nodes) for j in range(network.nics) for way in ways
            )
            pods = range(self.pods if network.has_pods else 0)
            yield from ((way, pod) for pod in pods for way in ("pod-up", "pod-down"))
            vertices = range(network.vertices)
            yield from (("edge", a, b) for a in vertices for b in network.neighbours(a))

    def has_link(self, link: Link) -> bool:
        """True for the links of this cluster, without enumerating them."""
        fabric, network = self.node, self.network
        match link:
            case ("port-up" | "port-down", gpu):
                return fabric is not None and fabric.ports and gpu < self.gpus
            case ("nvlink", a, b):
                if fabric is None or fabric.ports or max(a, b) >= self.gpus:
                    return False
                near = fabric.neighbours(self.slot_of(a), self.gpus_per_node)
                return self.node_of(a) == self.node_of(b) and self.slot_of(b) in near
            case ("nic-up" | "nic-down", node, j):
                return network is not None and node < self.nodes and j < network.nics
            case ("pod-up" | "pod-down", pod):
                return network is not None and network.has_pods and pod < self.pods
            case ("edge", a, b):
                return network is not None and a < network.vertices and b in network.neighbours(a)
        return False

    def parse_link(self, text: str) -> Route:
        """The links that a name stands for: 'node3.nic0' means both ways, 'node3.nic0.up' one.

        Raises `InputError` for a text that names no link of this cluster.
        """
        links = links_named(text)
        if not links:
            raise InputError(
                f"link {text!r}", "is not the name of a link", f"write it like {FORMS}"
            )
        if not all(self.has_link(link) for link in links):
            raise InputError(
                f"link {text!r}", f"{self.name} has no such link", f"it has {self._link_range()}"
            )
        return links

    def _link_range(self) -> str:
        """The links there are, as text: 'gpu0.port to gpu7.port, node0.nic0 to node0.nic7'."""
        network, found = self.network, []
        if self.node is not None and self.node.ports:
            found.append(f"gpu0.port to gpu{self.gpus - 1}.port")
        elif self.node is not None:
            found.append(f"nvlink 0-{self.node.neighbours(0, self.gpus_per_node)[0]} and others")
        if network is not None and network.nics:
            found.append(f"node0.nic0 to node{self.nodes - 1}.nic{network.nics - 1}")
        if network is not None and network.has_pods:
            found.append(f"pod0 to pod{self.pods - 1}")
        if network is not None and network.cabled:
            found.append(f"edge 0-{network.neighbours(0)[0]} and others")
        return ", ".join(found) or "none"


def _cables(kind: str, vertices: Sequence[int]) -> Route:
    return tuple((kind, a, b) for a, b in pairwise(vertices))


@cache
def _factors(degraded: tuple[Degraded, ...]) -> dict[Link, float]:
    factors: dict[Link, float] = {}
    for one in degraded:
        for link in links_named(one.link):
            factors[link] = factors.get(link, 1.0) * one.factor
    return factors


def load(
    name: str, overrides: Mapping[str, Any] | None = None, *, where: str = "command line"
) -> Topology:
    """The cluster that a name in `topologies` (or a path) stands for.

    `overrides` change values of the file before it is validated, by dotted path.
    Raises `InputError`.

    >>> load("dgx-a100-hdr", {"network.bandwidth": "100 Gb/s"}).capacity(("nic-up", 0, 0)) < 12.5e9
    True
    """
    path = library.find("topologies", name, where=where)
    data = library.read(path)
    for key, value in (overrides or {}).items():
        _set(data, key, value, str(path))
    data.setdefault("name", Path(name).stem)
    if isinstance(data.get("device"), str):
        data["device"] = devices.load(data["device"], where=str(path))
    return library.validate(data, Topology, str(path))


def _set(data: dict[str, Any], key: str, value: Any, where: str) -> None:
    *tables, last = key.split(".")
    for table in tables:
        inner = data.setdefault(table, {})
        if not isinstance(inner, dict):
            raise InputError(where, f"{table} in {key!r} is not a table", "check the key")
        data = inner
    data[last] = value
