"""Routes between endpoints: the links that a message, several messages or a collective load.

These are links of the topology. Regions that are far apart add one link each.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from math import ceil, log2
from typing import Annotated

from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.units import BytesPerSecond, Ge, Seconds
from sim.engine.group_loads import group_loads, shape_of
from sim.engine.machine import Machine
from sim.hardware.cluster.link_names import link_name
from sim.hardware.cluster.network import Link

LinkLoads = tuple[tuple[Link, float], ...]
Route = tuple[LinkLoads, float]
"""Links with the bytes that each carries for a byte of the message, and the latency (s)."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The place of a worker or a server: GPUs (or slots) of one node, or of several whole nodes.

    Several GPUs spread the bytes that they send over their NICs.
    """

    gpus: tuple[int, ...]

    @property
    def first(self) -> int:
        return self.gpus[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Regions:
    """Regions of `nodes` nodes each. One link joins each region to the other regions."""

    nodes: Annotated[int, Ge(1)]
    bandwidth: BytesPerSecond
    latency: Seconds


class Routes:
    """All routes of a machine. `overhead` is the software's cost of a message (s). A node's
    number gives its region, except for nodes in `guests`, which gives their regions."""

    def __init__(
        self,
        machine: Machine,
        overhead: float,
        regions: Regions | None,
        guests: Mapping[int, int] | None = None,
    ) -> None:
        self.machine, self.overhead, self.regions = machine, overhead, regions
        self._guests = guests or {}
        self.topology = machine.topology
        self._routes: dict[tuple[Endpoint, Endpoint], Route] = {}
        self._spread: dict[tuple[str, Endpoint], dict[Link, float]] = {}

    def between(self, source: Endpoint, target: Endpoint) -> Route:
        """The route of one message."""
        key = (source, target)
        route = self._routes.get(key)
        if route is None:
            route = self._routes[key] = self._route(source, target)
        return route

    def together(
        self, pairs: Iterable[tuple[Endpoint, Endpoint]], shares: Iterable[float]
    ) -> Route:
        """The route of messages that progress together and have these shares of the bytes."""
        routes = [self.between(source, target) for source, target in pairs]
        loads = _summed(zip((loads for loads, _ in routes), shares, strict=True))
        return loads, max((latency for _, latency in routes), default=0.0)

    def collective(
        self, kind: str, size: float, endpoints: Sequence[Endpoint], *, in_pieces: bool = False
    ) -> tuple[Route, LinkLoads]:
        """The route of a collective of all GPUs of some endpoints, with the bytes on each link, and
        the bytes that the protocol adds to them. With `in_pieces`, each GPU of an endpoint holds
        a piece of the `size` bytes. Then several collectives run at once, each among one GPU of
        every endpoint.

        Across R regions, bytes pass every region's link once in each direction. An all-reduce pays
        the latency of 2 (R - 1) dependent hops between regions, other collectives of log2(R) hops.
        """
        groups = [[gpu for endpoint in endpoints for gpu in endpoint.gpus]]
        if in_pieces:
            groups = [list(group) for group in zip(*(e.gpus for e in endpoints), strict=True)]
        loads: dict[Link, float] = {}
        protocol: dict[Link, float] = {}
        for gpus in groups:
            shape = shape_of(gpus, self.topology)
            cost = self.machine.call_cost(kind, size / len(groups), shape)
            loaded = group_loads(gpus, self.topology, shape, kind, cost.algorithm)
            for link, (port, nic) in loaded.items():
                if load := port * cost.port + nic * cost.nic:
                    sent = port * cost.sent_port + nic * cost.sent_nic
                    loads[link] = loads.get(link, 0.0) + load
                    protocol[link] = protocol.get(link, 0.0) + load - sent
        latency, across = cost.latency, cost.nic * len(groups)
        crossed = sorted({self.region(endpoint) for endpoint in endpoints}) if self.regions else []
        if self.regions and len(crossed) > 1:
            sent = cost.sent_nic * len(groups)
            links = [(link, r) for r in crossed for link in ("region-up", "region-down")]
            loads |= dict.fromkeys(links, across)
            protocol |= dict.fromkeys(links, across - sent)
            hops = 2 * (len(crossed) - 1) if kind == "all_reduce" else ceil(log2(len(crossed)))
            latency += hops * self.regions.latency
        return (tuple(loads.items()), latency), tuple(protocol.items())

    def capacity(self, link: Link) -> float:
        """The payload bandwidth of a link (B/s)."""
        if str(link[0]).startswith("region"):
            assert self.regions is not None
            return self.regions.bandwidth
        return self.topology.capacity(link)

    def links_named(self, text: str) -> tuple[Link, ...]:
        """The links with a name: a name of the topology's links, region2, or region2.up.

        Raises `InputError` for an unknown name.
        """
        named = re.fullmatch(r"region(\d+)(?:\.(up|down))?", text)
        if not named or self.regions is None:
            return self.topology.parse_link(text)
        region, last = int(named[1]), max(map(self._region_of, range(self.topology.gpus)))
        if region > last:
            raise InputError(f"link {text!r}", "no such region", f"there are regions 0 to {last}")
        ends = ("up", "down") if named[2] is None else (named[2],)
        return tuple((f"region-{end}", region) for end in ends)

    def _route(self, source: Endpoint, target: Endpoint) -> Route:
        if source.first == target.first:
            return (), 0.0
        route = self.topology.route(source.first, target.first)
        latency = self.overhead + self.topology.delay(source.first, target.first)
        if self.regions and self.region(source) != self.region(target):
            latency += self.regions.latency
        return self._loads(source, target, route), latency

    def _loads(self, source: Endpoint, target: Endpoint, route: Sequence[Link]) -> LinkLoads:
        """The share of a message's bytes on each link from one endpoint to another."""
        topology, a, b = self.topology, source.first, target.first
        loads: dict[Link, float] = dict.fromkeys(route, 1.0)
        nics = topology.network.nics if topology.network else 0
        if topology.node_of(a) != topology.node_of(b) and nics:
            loads = {link: 1.0 for link in route if str(link[0]).startswith(("pod", "edge"))}
            loads |= self._nics("nic-up", source) | self._nics("nic-down", target)
        if self.regions and (here := self.region(source)) != (there := self.region(target)):
            loads |= {("region-up", here): 1.0, ("region-down", there): 1.0}
        return tuple(loads.items())

    def _nics(self, kind: str, endpoint: Endpoint) -> dict[Link, float]:
        """The bytes that leave or enter a node, spread evenly over the endpoint's NICs."""
        key = kind, endpoint
        if key not in self._spread:
            loads = self._spread[key] = {}
            for gpu in endpoint.gpus:
                link = (kind, *self.topology.nic_of(gpu))
                loads[link] = loads.get(link, 0.0) + 1.0 / len(endpoint.gpus)
        return self._spread[key]

    def region(self, endpoint: Endpoint) -> int:
        """The region that an endpoint is in."""
        return self._region_of(endpoint.first)

    def _region_of(self, gpu: int) -> int:
        assert self.regions is not None
        node = self.topology.node_of(gpu)
        return self._guests.get(node, node // self.regions.nodes)


def name_of(link: Link) -> str:
    """The name of a link, as users write it."""
    kind, number = str(link[0]), link[1]
    return f"region{number}.{kind[7:]}" if kind.startswith("region") else link_name(link)


def _summed(weighted: Iterable[tuple[LinkLoads, float]]) -> LinkLoads:
    """The loads of one transfer that stands for several messages with shares of its bytes."""
    total: dict[Link, float] = {}
    for loads, share in weighted:
        for link, load in loads:
            total[link] = total.get(link, 0.0) + load * share
    return tuple(total.items())
