"""Ways between places: which links a message, a fan of messages or a collective loads.

Links of the topology, and one more for each region where places are far apart.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, log2

from sim.collectives.group import GroupShape
from sim.config.errors import InputError
from sim.engine.communicators import group_loads
from sim.engine.machine import Machine
from sim.hardware.cluster.link import Link, link_name
from sim.hardware.cluster.topology import Topology

Shares = tuple[tuple[Link, float], ...]
Way = tuple[Shares, float]
"""Links with the bytes that each carries for a byte of the message, and the latency (s)."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a worker or a server is: GPUs (or slots) of one node, and how many of its NICs it uses.

    A place of several GPUs spreads what it sends over their NICs.
    """

    gpus: tuple[int, ...]

    @property
    def first(self) -> int:
        return self.gpus[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Regions:
    """Places far apart: `nodes` of a topology to a region, each with one link to the others."""

    nodes: int
    bandwidth: float
    latency: float


class Ways:
    """All ways of a machine; `overhead` is the software's cost of a message (s)."""

    def __init__(self, machine: Machine, overhead: float, regions: Regions | None) -> None:
        self.machine, self.overhead, self.regions = machine, overhead, regions
        self.topology = machine.topology
        self._known: dict[tuple[Place, Place], Way] = {}

    def between(self, source: Place, target: Place) -> Way:
        """Of a message from one place to another."""
        key = (source, target)
        if key not in self._known:
            self._known[key] = self._found(source, target)
        return self._known[key]

    def fan(self, pairs: Iterable[tuple[Place, Place]], shares: Iterable[float]) -> Way:
        """Of several messages that progress together, each with its share of the bytes."""
        ways = [self.between(source, target) for source, target in pairs]
        loads = _summed(zip((way for way, _ in ways), shares, strict=True))
        return loads, max((far for _, far in ways), default=0.0)

    def collective(self, kind: str, size: float, places: Sequence[Place]) -> Way:
        """Of a collective of all GPUs of some places, in bytes.

        Across regions a ring passes every region's link once each way, and its 2(R-1) dependent
        hops pay their latency.
        """
        gpus = [gpu for place in places for gpu in place.gpus]
        shape = _shape(gpus, self.topology)
        cost = self.machine.call_cost(kind, size, shape)
        loads: dict[Link, float] = {}
        for link, (port, nic) in group_loads(gpus, self.topology, shape).items():
            if load := port * cost.port + nic * cost.nic:
                loads[link] = load
        latency = cost.latency
        if self.regions and (crossed := sorted({self._region(place) for place in places}))[1:]:
            loads |= {(way, r): cost.nic for r in crossed for way in ("region-up", "region-down")}
            hops = 2 * (len(crossed) - 1) if kind == "all_reduce" else ceil(log2(len(crossed)))
            latency += hops * self.regions.latency
        return tuple(loads.items()), latency

    def capacity(self, link: Link) -> float:
        """B/s of payload."""
        if str(link[0]).startswith("region"):
            assert self.regions is not None
            return self.regions.bandwidth
        return self.topology.capacity(link)

    def links_named(self, text: str) -> tuple[Link, ...]:
        """The links that a name stands for: those of the topology, region2 or region2.up.

        Raises `InputError`.
        """
        found = re.fullmatch(r"region(\d+)(?:\.(up|down))?", text)
        if not found or self.regions is None:
            return self.topology.parse_link(text)
        region, last = int(found[1]), self._region_of(self.topology.gpus - 1)
        if region > last:
            raise InputError(f"link {text!r}", "no such region", f"there are regions 0 to {last}")
        return tuple((f"region-{way}", region) for way in ("up", "down") if found[2] in (None, way))

    def _found(self, source: Place, target: Place) -> Way:
        if source.first == target.first:
            return (), 0.0
        route = self.topology.route(source.first, target.first)
        far = self.overhead + sum(self.topology.latency(link) for link in route)
        if self.regions and self._region(source) != self._region(target):
            far += self.regions.latency
        return self._loads(source, target, route), far

    def _loads(self, source: Place, target: Place, route: Sequence[Link]) -> Shares:
        """The share of a message's bytes on each link from one place to another."""
        topology, a, b = self.topology, source.first, target.first
        loads: dict[Link, float] = dict.fromkeys(route, 1.0)
        if topology.node_of(a) != topology.node_of(b) and topology.hierarchical:
            loads = {link: 1.0 for link in route if str(link[0]).startswith("pod")}
            _spread(loads, "nic-up", source, topology)
            _spread(loads, "nic-down", target, topology)
        if self.regions and (here := self._region(source)) != (there := self._region(target)):
            loads |= {("region-up", here): 1.0, ("region-down", there): 1.0}
        return tuple(loads.items())

    def _region(self, place: Place) -> int:
        return self._region_of(place.first)

    def _region_of(self, gpu: int) -> int:
        assert self.regions is not None
        return self.topology.node_of(gpu) // self.regions.nodes


def name_of(link: Link) -> str:
    """As people write it."""
    kind, place = str(link[0]), link[1]
    return f"region{place}.{kind[7:]}" if kind.startswith("region") else link_name(link)


def _summed(ways: Iterable[tuple[Shares, float]]) -> Shares:
    """Loads of several ways as those of one transfer."""
    loads: dict[Link, float] = {}
    for way, share in ways:
        for link, load in way:
            loads[link] = loads.get(link, 0.0) + load * share
    return tuple(loads.items())


def _spread(loads: dict[Link, float], way: str, place: Place, topology: Topology) -> None:
    """What leaves (or enters) a node is divided evenly over the NICs of the place's GPUs."""
    for gpu in place.gpus:
        node, nic = topology.nic_of(gpu)
        loads[way, node, nic] = loads.get((way, node, nic), 0.0) + 1.0 / len(place.gpus)


def _shape(gpus: Sequence[int], topology: Topology) -> GroupShape:
    per_node: dict[int, int] = {}
    for gpu in gpus:
        node = topology.node_of(gpu)
        per_node[node] = per_node.get(node, 0) + 1
    return GroupShape(ranks=len(gpus), nodes=len(per_node), per_node=max(per_node.values()))
