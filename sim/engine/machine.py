"""The machine that a program runs on: a topology, a backend, and what is wrong with some ranks."""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from sim.collectives.interconnect import (
    HEALTHY,
    CallCost,
    CollectiveCall,
    Interconnect,
    NetworkState,
    state_of,
)
from sim.collectives.libraries.backend import Backend
from sim.collectives.schedule import GroupShape, kind_named
from sim.collectives.selection import check, chosen
from sim.config.dataclass import dataclass
from sim.engine.cable_routes import check_orders, orders
from sim.hardware.cluster.topology import Link, Topology
from sim.program.calls import MeasuredBandwidth

if TYPE_CHECKING:
    from sim.program.routed import Routed


@dataclass(frozen=True)
class Machine:
    """`slowdown` holds the ranks whose kernels take longer, with factors; rank r is GPU r. On the
    `shared` links comes traffic of others, too; those with equal values carry the same of it."""

    topology: Topology
    backend: Backend
    slowdown: Mapping[int, float] = field(default_factory=dict)
    shared: Mapping[Link, Hashable] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise `InputError` for algorithms that nothing has, and rings without cables."""
        for key in ("node", "network"):
            if level := getattr(self.topology, key):
                check(level.algorithm, f"topology {self.topology.name}, {key}.algorithm")
        check_orders(self.topology)

    def call_cost(
        self,
        kind: str,
        bytes: float,
        shape: GroupShape,
        routed: "Routed | None" = None,
        among: int = 2,
        beside: float = 0.0,
    ) -> CallCost:
        """The backend's fluid reading of a call, in bytes as the topology's links count them, with
        so many seconds of kernels `beside` it (`Device.beside`).

        Backends are fitted to line rates, of which a link's own efficiency is a part; it must
        not be taken off twice.
        """
        if kind in ("copy", "stream"):
            host = self.topology.host if kind == "copy" else None
            return CallCost(latency=host.latency if host else 0.0, port=bytes, sent_port=bytes)
        cost = self.backend.call_cost(self.call(kind, bytes, shape, routed, among))
        return self._on_links(self._beside_kernels(cost, beside) if beside else cost)

    def _beside_kernels(self, cost: CallCost, seconds: float) -> CallCost:
        """A port has the share b of its bandwidth for so many `seconds` K of kernels: bytes that
        take P alone take min(P / b, P + (1 - b) K)."""
        share, alone = self.topology.device.beside, cost.port / self.interconnect.port_bandwidth
        if share == 1.0 or alone == 0.0:
            return cost
        longer = min(1.0 / share, 1.0 + (1.0 - share) * seconds / alone)
        return replace(cost, port=longer * cost.port)

    def candidates(
        self, kind: str, bytes: float, shape: GroupShape, algorithms: tuple[str, ...] = ()
    ) -> list[CallCost]:
        """What each algorithm and protocol that the library considers would cost, or those of
        `algorithms`; raises `InputError` for one that it does not have."""
        call = self.call(kind, bytes, shape)
        call = replace(call, algorithms=algorithms) if algorithms else call
        every = getattr(self.backend, "candidates", lambda call: [self.backend.call_cost(call)])
        return [self._on_links(cost) for cost in every(call)]

    def _on_links(self, cost: CallCost) -> CallCost:
        node, network = self.topology.node, self.topology.network
        cost = self.state.cost(cost)
        return replace(
            cost,
            port=cost.port * (node.efficiency if node else 1.0),
            nic=cost.nic * (network.efficiency if network else 1.0),
        )

    def call(
        self,
        kind: str,
        bytes: float,
        shape: GroupShape,
        routed: "Routed | None" = None,
        among: int = 2,
    ) -> CollectiveCall:
        """A call as the library is asked it, with what the topology says of its algorithm."""
        called = kind_named(kind, self.topology.name)
        level = self.topology.network if shape.nodes > 1 else self.topology.node
        named = chosen(level.algorithm, called, bytes) if level and routed is None else ()
        interconnect = self._at_distance(shape.beyond) if shape.beyond else self.interconnect
        return CollectiveCall(called, bytes, shape, interconnect, routed, named, among)

    def _at_distance(self, beyond: float) -> Interconnect:
        """The hardware for a group whose hops take so many seconds more."""
        known = self._distant.get(beyond)
        if known is None:
            latency = (self.interconnect.latency or 0.0) + beyond
            known = self._distant[beyond] = replace(self.interconnect, latency=latency)
        return known

    @cached_property
    def _distant(self) -> dict[float, Interconnect]:
        return {}

    @cached_property
    def state(self) -> NetworkState:
        """The state of the network, where a job needs one and it was measured."""
        network = self.topology.network
        if network is None or not network.measured or self.topology.nodes == 1:
            return HEALTHY
        return state_of(network.measured, [self._expected(reading) for reading in network.measured])

    def _expected(self, measured: MeasuredBandwidth) -> float:
        """Seconds that the library would take for what was measured."""
        shape = GroupShape.of(measured.gpus, self.topology.gpus_per_node)
        call = self.call(measured.collective, measured.size, shape)
        return call.duration(self.backend.call_cost(call))

    @cached_property
    def interconnect(self) -> Interconnect:
        """The hardware in short, as a collective library finds it."""
        topology = self.topology
        node, network = topology.node, topology.network
        used = min(topology.gpus, topology.gpus_per_node)
        slots = topology.gpus_per_node
        port = node.port_bandwidth(slots, used) if node else 1.0
        # Where nodes are cabled to each other, each ring leaves them over one cable.
        nics = (network.nics or len(orders(network)) or 1) if network else 0
        spread = node is not None and node.spread
        return Interconnect(
            generation=topology.device.generation,
            gpus_per_node=slots,
            port_bandwidth=port,
            mesh=node.mesh(slots) if node and spread else (),
            torus=node.torus(used) if node else (),
            cores=getattr(node, "cores", 1),  # of a torus
            cable_bandwidth=node.nvlink_bandwidth(slots) if node and spread else 0.0,
            nics_per_node=nics,
            nic_bandwidth=topology.nic_bandwidth,
            network=network.kind if network else "none",
            nvls=node.reduces if node else False,
            latency=network.latency if network else None,
            port_latency=node.latency if node and node.relays else None,
            efficiency=network.efficiency if network else 1.0,
        )

    @cached_property
    def returned(self) -> float:
        """Bytes on the way back for each byte of a message: TCP's acknowledgements, under Gloo."""
        network, returned = self.topology.network, getattr(self.backend, "returned", None)
        return float(returned(network.efficiency)) if network and returned else 0.0

    @property
    def healthy(self) -> "Machine":
        """The same machine with nothing wrong."""
        return replace(self, topology=replace(self.topology, degraded=()), slowdown={})

    @property
    def is_healthy(self) -> bool:
        return not self.slowdown and not self.topology.degraded

    @cached_property
    def odd_pods(self) -> frozenset[int]:
        """Pods of which the uplinks are degraded or shared."""
        return frozenset(place for kind, place, *_ in self._odd_links if kind.startswith("pod"))

    @cached_property
    def odd_nodes(self) -> frozenset[int]:
        """Nodes of which a link is degraded or shared."""
        nodes = set()
        for kind, place, *_ in self._odd_links:
            if kind.startswith(("nic", "pcie", "memory", "nvme", "cores", "client")):
                nodes.add(place)
            elif kind.startswith(("storage", "operations")):
                nodes |= self._own_store(place)
            elif not kind.startswith("pod"):
                nodes.add(self.topology.node_of(place))
        return frozenset(nodes)

    def _own_store(self, place: int) -> set[int]:
        """The node that alone uses a store; nodes that share it are alike, or told apart by it."""
        storage = self.topology.storage
        return {place} if storage and not storage.shared else set()

    @property
    def _odd_links(self) -> Iterator[Link]:
        yield from self.shared
        for slow in self.topology.degraded:
            yield from self.topology.parse_link(slow.link)
