"""NCCL's choice of algorithm and protocol for a call, and the cost of this choice.

For each algorithm (ring, tree, NVLS, NVLS tree) and protocol (LL, LL128, Simple) NCCL predicts
latency + size / bandwidth and takes the fastest (NCCL 2.19, src/graph/tuning.cc). This module does
the same with the bytes that the algorithms state and with constants fitted to
published nccl-tests (`nccl_constants`).
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TypeVar

from sim.collectives.algorithms import nvls, relayed, tree
from sim.collectives.group import LevelLoads, LevelSteps
from sim.collectives.interconnect import CallCost, CollectiveCall
from sim.collectives.libraries.nccl_constants import (
    PROTOCOLS,
    NcclConstants,
    NcclProtocol,
    NetworkConstants,
    NodeConstants,
    PerProtocol,
    Relay,
    StepTime,
)
from sim.collectives.selection import on_levels, refused
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.program.routed import Routed
from sim.program.selection import AUTO

PER_NIC = 2  # CTAs for each NIC (S. Jeaugey, NVIDIA/nccl issue 689: 2 for a single NIC, 16 for 8)
# Received bytes are written into a buffer, read there, and combined with or written to the user's
# data ("it can be 3x", S. Jeaugey, NVIDIA/nccl issue 1428).
MEMORY_PASSES = 3.0
# Payload of a step of LL: 512 threads have 8 lines of 16 bytes each, half of them flags (NCCL 2.19,
# src/init.cc, computeBuffSizes, and src/enqueue.cc: chunks of LL are half a step of the buffer).
LL_CHUNK = 512 * 8 * 16 / 2
LL_OF_PEERS = 2.0**14  # bytes of a message, above which it goes by Simple (NCCL_P2P_LL_THRESHOLD)
LL_OF_RING, LL_OF_TREE = 1.0 / 2.0, 1.0 / 3.8  # of Simple's bandwidth (src/graph/tuning.cc)
_JOIN = 4.0  # order of the norm by which SMs and ports join
MOST_OF_A_CHANNEL = 32 * 2.0**19  # bytes of a message, see `_of_channels`

LOCAL = NetworkConstants(
    launch=0.0,
    latency=0.0,
    hop=StepTime(ll=0.0, ll128=0.0, simple=0.0),
    keeps=PerProtocol(ll=1.0, ll128=1.0),
    fraction=1.0,
)

_SINGLE = ("point_to_point", "sendrecv")  # a rank sends one message
_OF_PEERS = ("all_to_all", "gather", "scatter", *_SINGLE)  # grouped sends and receives


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclCall:
    """A call with all inputs of its cost; a group within a node has the network `LOCAL`."""

    call: CollectiveCall
    node: NodeConstants
    network: NetworkConstants

    def cost(
        self, name: str, protocol: NcclProtocol, loads: LevelLoads, reached: float, latency: float
    ) -> CallCost:
        """The cost, in bytes at line rate; a smaller share `reached` of it means more bytes."""
        port = reached * self._kept(name, protocol, reached)
        nic = self.network.fraction * getattr(self.network.keeps, protocol)
        received = max(loads.port, loads.nic / self.call.shape.per_node)
        return CallCost(
            latency=latency,
            port=self.call.size * loads.port / port,
            nic=self.call.size * loads.nic / nic,
            algorithm=name,
            protocol=protocol,
            ctas=self.ctas,
            memory=MEMORY_PASSES * self.call.size * received,
        )

    def _kept(self, name: str, protocol: NcclProtocol, reached: float) -> float:
        """The share of `reached` that a protocol keeps. The share fitted to LL's small messages
        holds while chunks grow with a message; further bytes move at the rate of `tuning.cc`."""
        node, call = self.node, self.call
        keeps: float = getattr(node.tree_keeps if name == "tree" else node.keeps, protocol)
        grown = self.ctas * LL_CHUNK * (1 if name == "tree" else call.shape.ranks)
        if protocol != "ll" or not node.ll_most or call.size <= grown:
            return keeps
        most = node.ll_most[min(call.shape.nodes, 3) - 1]
        share = LL_OF_TREE if name == "tree" else LL_OF_RING
        rest = min(share, most / (reached * call.interconnect.port_bandwidth))
        return call.size / (grown / keeps + (call.size - grown) / max(keeps, rest))

    @property
    def ctas(self) -> int:
        """The SMs that its kernel holds: an SM for each channel."""
        if self.call.shape.nodes == 1:
            return self.node.channels
        return min(self.node.channels, PER_NIC * self.call.interconnect.nics_per_node)

    def latency(self, steps: LevelSteps, protocol: NcclProtocol, overhead: float = 0.0) -> float:
        """Launch and dependent steps (tuning.cc: base latency and hardware latencies).

        Steps of a ring through the network take at least the proxies' `overhead` each.
        """
        hop = getattr(self.node.hop, protocol) + self.extra_port_latency
        inside = steps.intra * max(hop, overhead)
        between = steps.inter * (getattr(self.network.hop, protocol) + self.extra_latency)
        return self.node.launch + self.network.launch + float(inside + between)

    @property
    def extra_latency(self) -> float:
        """Latency (s) beyond the latency of the networks on which the steps were measured."""
        if self.call.interconnect.latency is None:
            return 0.0
        return max(self.call.interconnect.latency - self.network.latency, -self.network.hop.ll)

    @property
    def extra_port_latency(self) -> float:
        """Extra latency (s) from port to port within a node."""
        if self.call.interconnect.port_latency is None:
            return 0.0
        return max(self.call.interconnect.port_latency - self.node.latency, -self.node.hop.ll)

    @property
    def cabled(self) -> float:
        """The fraction of a port's cables that rings through this group use: 1 with a switch."""
        hardware, members = self.call.interconnect, self.call.shape.per_node
        if not hardware.mesh or members == 1:
            return 1.0
        from sim.collectives.cable_rings import rings

        return rings(hardware.mesh, members) * hardware.cable_bandwidth / hardware.port_bandwidth


class Nccl:
    """The backend; calls are cached, because a training step repeats a few of them often."""

    def __init__(self, constants: NcclConstants) -> None:
        self.constants = constants
        self.call_cost = lru_cache(maxsize=1 << 16)(self._fastest)

    def __reduce__(self) -> tuple[type["Nccl"], tuple[NcclConstants]]:
        """Without the cache: another process fills its own."""
        return Nccl, (self.constants,)

    def _fastest(self, call: CollectiveCall) -> CallCost:
        if call.shape.ranks == 1:
            return CallCost(latency=0.0, algorithm="none", protocol="none")
        return min(self.candidates(call), key=call.duration)

    def candidates(self, call: CollectiveCall) -> Iterator[CallCost]:
        """Every algorithm and protocol that NCCL would consider for the call.

        Raises `InputError` for a generation or network without constants.
        """
        shape, interconnect = call.shape, call.interconnect
        node = _named(self.constants.node, interconnect.generation, "GPU generation")
        network = LOCAL
        if shape.nodes > 1:
            network = _named(self.constants.network, interconnect.network, "network")
        nccl_call = NcclCall(call=call, node=node, network=network)
        for name in call.algorithms or (AUTO,):
            for used in self._usual(call) if name == AUTO else [name]:
                yield from _costs(nccl_call, used)

    @staticmethod
    def _usual(call: CollectiveCall) -> Iterator[str]:
        """The algorithms that NCCL itself considers."""
        if call.kind in _OF_PEERS:
            yield "direct"
            return
        yield "ring"
        if call.kind == "all_reduce":
            yield "tree"
        if _reduced_in_switch(call):
            yield "nvls"


def _reduced_in_switch(call: CollectiveCall) -> bool:
    shape = call.shape
    supported = shape.per_node > 1 and (shape.nodes == 1 or call.kind == "all_reduce")
    return call.interconnect.nvls and supported


def _costs(nccl_call: NcclCall, name: str) -> Iterator[CallCost]:
    """Costs of an algorithm; without kernels of NCCL it is assumed to be as efficient as rings."""
    if nccl_call.call.kind in _OF_PEERS:
        yield _peer(nccl_call, name)
    elif name == "nvls":
        if not _reduced_in_switch(nccl_call.call):
            raise refused(nccl_call.call, name, "needs NVLink SHARP and several GPUs of a node")
        yield _nvls(nccl_call)
    else:
        yield from (
            _tree(nccl_call, p) if name == "tree" else _along(nccl_call, name, p)
            for p in PROTOCOLS
            if getattr(nccl_call.network.keeps, p)
        )


def _along(nccl_call: NcclCall, name: str, protocol: NcclProtocol) -> CallCost:
    """The cost of an algorithm from its loads and steps."""
    loads, steps = on_levels(name, nccl_call.call.kind, nccl_call.call.shape)
    latency = nccl_call.latency(steps, protocol, nccl_call.network.overhead)
    if protocol == "simple":
        latency += nccl_call.node.fill.seconds(nccl_call.call.size)
    if loads.port:
        loads = _with_own_part(nccl_call, loads, nccl_call.node.touch)
    return nccl_call.cost(name, protocol, loads, nccl_call.node.ring * nccl_call.cabled, latency)


def _with_own_part(nccl_call: NcclCall, loads: LevelLoads, touch: float) -> LevelLoads:
    """Loads with the copy of a rank's own part, S/n, to its result."""
    return LevelLoads(port=loads.port + touch / nccl_call.call.shape.ranks, nic=loads.nic)


def _tree(nccl_call: NcclCall, protocol: NcclProtocol) -> CallCost:
    steps = tree.steps(nccl_call.call.kind, nccl_call.call.shape)
    latency = nccl_call.latency(steps, protocol)
    if protocol == "simple":
        latency += nccl_call.node.fill.seconds(nccl_call.call.size)
        latency += steps.inter * nccl_call.network.fill.seconds(nccl_call.call.size)
    loads = tree.loads(nccl_call.call.kind, nccl_call.call.shape)
    return nccl_call.cost("tree", protocol, loads, nccl_call.node.tree * nccl_call.cabled, latency)


def _nvls(nccl_call: NcclCall) -> CallCost:
    steps = nvls.steps(nccl_call.call.kind, nccl_call.call.shape)
    latency = nccl_call.latency(LevelSteps(intra=0, inter=steps.inter), "simple")
    members = nccl_call.call.shape.per_node
    fill = nccl_call.node.nvls_fill.seconds(nccl_call.call.size / members)
    latency += steps.intra * nccl_call.node.nvls_hop + members * fill
    latency += steps.inter * nccl_call.network.fill.seconds(nccl_call.call.size)
    loads = nvls.loads(nccl_call.call.kind, nccl_call.call.shape)
    if not (nccl_call.node.nvls and nccl_call.node.nvls_tree):
        fault = f"reduces = true, but {nccl_call.call.interconnect.generation} has no NVLink SHARP"
        raise InputError("topology, node", fault, "set reduces = false or leave it out")
    if nccl_call.call.shape.nodes == 1:
        return nccl_call.cost("nvls", "simple", loads, nccl_call.node.nvls, latency)
    return nccl_call.cost("nvls_tree", "simple", loads, nccl_call.node.nvls_tree, latency)


def _peer(nccl_call: NcclCall, name: str) -> CallCost:
    """Grouped sends and receives, including all-to-all, go straight to their peers; routed items
    are passed on within nodes (DeepEP)."""
    call, node = nccl_call.call, nccl_call.node
    loads, steps = on_levels(name, call.kind, call.shape)
    message = call.size if call.kind in _SINGLE else call.size / call.shape.ranks
    if call.kind == "scatter" and loads.nic:  # through neighbours to the NICs of receivers (PXN)
        loads = LevelLoads(port=1.0 - 1.0 / call.shape.ranks, nic=loads.nic)
    elif call.kind in ("gather", "sendrecv") and loads.nic:  # through the receiver's own NIC
        nics = call.interconnect.nic_share(call.shape.per_node) / call.interconnect.nic_bandwidth
        loads = LevelLoads(port=loads.port, nic=loads.nic * nics)
    protocol: NcclProtocol = "ll" if message <= LL_OF_PEERS and call.routed is None else "simple"
    latency, share = nccl_call.latency(steps, protocol), node.peer
    if call.routed is not None:
        name, loads = "relayed", relayed.loads(call.routed, call.shape)
        share = node.relay or share
        relay = node.relays.of(call.routed, call.shape.nodes) if node.relays else None
        if node.relays and relay and call.routed.sms and loads.port:
            nic = loads.nic / node.relays.carried(call.shape.nodes)
            loads = LevelLoads(port=loads.port, nic=nic)
            return _relayed(nccl_call, call.routed, loads, relay)
    elif call.kind == "all_to_all" and loads.port and node.all_to_all:
        loads = _with_own_part(nccl_call, loads, node.all_to_all.touch)
        latency += node.all_to_all.fill.seconds(call.size)
        share = node.all_to_all.share
    return nccl_call.cost(name, "simple", loads, min(share, _of_channels(nccl_call)), latency)


def _relayed(nccl_call: NcclCall, routed: Routed, loads: LevelLoads, relay: Relay) -> CallCost:
    """Routed items that the SMs of a node pass on. SMs and ports overlap as products and memory do
    (the norm of order 4 of `sim.hardware.kernels.gemm`), in bytes at line rate."""
    call = nccl_call.call
    line, parts = call.interconnect.port_bandwidth, call.shape.nodes
    parts = parts if parts > 1 else call.shape.ranks
    on_sms = relay.seconds(call.size / routed.item, routed, parts) * line
    on_port = call.size * loads.port / relay.share
    reached = call.size * loads.port / (on_sms**_JOIN + on_port**_JOIN) ** (1 / _JOIN)
    latency = relay.launch + relay.node * call.shape.nodes
    return nccl_call.cost("relayed", "simple", loads, reached, latency)


def _of_channels(nccl_call: NcclCall) -> float:
    """The share of a port's bandwidth that the channels of messages within a node carry.

    A communicator's channels, rounded up to a power of two, are divided among its ranks. A message
    doubles its channels while each carries more than 32 chunks of 512 KiB, up to four ranks a
    channel (NCCL 2.18, src/enqueue.cc, scheduleP2pTasksToPlan, and src/graph/paths.cc,
    ncclTopoComputeP2pChannels). A communicator larger than a node has two channels for each peer.
    In an all-to-all every rank has n - 1 messages of S/n at a time.
    """
    call, node = nccl_call.call, nccl_call.node
    if call.shape.nodes > 1 or not node.channel:
        return 1.0
    alone = call.kind in _SINGLE
    among = call.among if call.kind == "point_to_point" else call.shape.ranks
    peers = 1 if alone else call.shape.ranks - 1
    message = call.size if alone else call.size / call.shape.ranks
    every = 1 << (node.channels - 1).bit_length()
    few, many = max(every // among, 1), max(min(4 * every // among, every), 1)
    if among > call.interconnect.gpus_per_node:
        few = many = PER_NIC
    while message / few > MOST_OF_A_CHANNEL and 2 * few <= many:
        few *= 2
    return min(few * peers, every) * node.channel / call.interconnect.port_bandwidth


C = TypeVar("C")


def _named(known: Mapping[str, C], name: str, what: str) -> C:
    if name not in known:
        raise InputError("nccl backend", f"no {what} named {name!r}", f"known: {', '.join(known)}")
    return known[name]
