"""The machine on which a program runs: a topology, a backend, slow ranks and shared links."""

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
    check,
    chosen,
)
from sim.collectives.libraries.backend import Backend
from sim.collectives.schedule import GroupShape, kind_named
from sim.config.dataclass import dataclass
from sim.engine.group_links import check_orders, orders
from sim.hardware.cluster.topology import Link, Topology
from sim.program.operations import MeasuredBandwidth

if TYPE_CHECKING:
    from sim.program.routed import Routed


@dataclass(frozen=True)
class Machine:
    """A topology with the backend that carries out collectives. `slowdown` gives the factor by
    which kernels of slow ranks take longer; rank r is GPU r. Other jobs' traffic also uses the
    `shared` links; links with equal values carry equal traffic of other jobs."""

    topology: Topology
    backend: Backend
    slowdown: Mapping[int, float] = field(default_factory=dict)
    shared: Mapping[Link, Hashable] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise `InputError` for unknown algorithms, and for rings that no cables form."""
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
        """The cost that the backend states for a call, in bytes as the topology's links count them.
        Kernels run beside the call for `beside` seconds (`Device.beside`).

        Backends are fitted to line rates. A link's own efficiency is part of such a rate and must
        not be counted twice.
        """
        if kind in ("copy", "stream"):
            host = self.topology.host if kind == "copy" else None
            return CallCost(latency=host.latency if host else 0.0, port=bytes, sent_port=bytes)
        cost = self.backend.call_cost(self.call(kind, bytes, shape, routed, among))
        return self._on_links(self._beside_kernels(cost, beside) if beside else cost)

    def _beside_kernels(self, cost: CallCost, seconds: float) -> CallCost:
        """The cost beside kernels that run for K `seconds`. Meanwhile a port has the share b of its
        bandwidth. Bytes that take P seconds alone take min(P / b, P + (1 - b) K) seconds."""
        share, alone = self.topology.device.beside, cost.port / self.interconnect.port_bandwidth
        if share == 1.0 or alone == 0.0:
            return cost
        longer = min(1.0 / share, 1.0 + (1.0 - share) * seconds / alone)
        return replace(cost, port=longer * cost.port)

    def candidates(
        self, kind: str, bytes: float, shape: GroupShape, algorithms: tuple[str, ...] = ()
    ) -> list[CallCost]:
        """The costs of a call with each algorithm and protocol that the library considers, or with
        the given `algorithms`. Raises `InputError` for an algorithm that the library lacks."""
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
        """A call as the library receives it, with the algorithms that the topology prescribes."""
        called = kind_named(kind, self.topology.name)
        level = self.topology.network if shape.nodes > 1 else self.topology.node
        named = chosen(level.algorithm, called, bytes) if level and routed is None else ()
        interconnect = self._at_distance(shape.beyond) if shape.beyond else self.interconnect
        return CollectiveCall(called, bytes, shape, interconnect, routed, named, among)

    def _at_distance(self, beyond: float) -> Interconnect:
        """The hardware for a group whose hops take `beyond` seconds longer."""
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
        """The network's state from measured bandwidths. One node is always healthy."""
        network = self.topology.network
        if network is None or not network.measured or self.topology.nodes == 1:
            return HEALTHY
        from sim.collectives.measured_network import state_of

        return state_of(network.measured, [self._expected(reading) for reading in network.measured])

    def _expected(self, measured: MeasuredBandwidth) -> float:
        """The seconds that the library would take for a measured collective."""
        shape = GroupShape.of(measured.gpus, self.topology.gpus_per_node)
        call = self.call(measured.collective, measured.size, shape)
        return call.duration(self.backend.call_cost(call))

    @cached_property
    def interconnect(self) -> Interconnect:
        """The properties of the hardware that a collective library uses."""
        topology = self.topology
        node, network = topology.node, topology.network
        used = min(topology.gpus, topology.gpus_per_node)
        slots = topology.gpus_per_node
        port = node.port_bandwidth(slots, used) if node else 1.0
        # Where nodes are cabled to each other, each ring leaves a node over one cable.
        nics = (network.nics or len(orders(network)) or 1) if network else 0
        spread = node is not None and node.spread
        return Interconnect(
            generation=topology.device.generation,
            gpus_per_node=slots,
            port_bandwidth=port,
            mesh=node.mesh(slots) if node and spread else (),
            torus=node.torus(used) if node else (),
            cores=getattr(node, "cores", 1),  # devices of a chip in a torus
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
        """Bytes that travel back for each byte of a message: TCP's acknowledgements, with Gloo."""
        network, returned = self.topology.network, getattr(self.backend, "returned", None)
        return float(returned(network.efficiency)) if network and returned else 0.0

    @property
    def healthy(self) -> "Machine":
        """The same machine without slow ranks and degraded links."""
        return replace(self, topology=replace(self.topology, degraded=()), slowdown={})

    @property
    def is_healthy(self) -> bool:
        return not self.slowdown and not self.topology.degraded

    @cached_property
    def odd_pods(self) -> frozenset[int]:
        """Pods whose uplinks are degraded or shared."""
        return frozenset(place for kind, place, *_ in self._odd_links if kind.startswith("pod"))

    @cached_property
    def odd_nodes(self) -> frozenset[int]:
        """Nodes with a degraded or shared link."""
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
        """The only node that uses a store. The set is empty for a store that nodes share."""
        storage = self.topology.storage
        return {place} if storage and not storage.shared else set()

    @property
    def _odd_links(self) -> Iterator[Link]:
        yield from self.shared
        for slow in self.topology.degraded:
            yield from self.topology.parse_link(slow.link)
