"""NCCL's choice of algorithm and protocol for a call, and the cost of this choice.

For each algorithm (ring, tree, NVLS, NVLS tree) and protocol (LL, LL128, Simple) NCCL predicts
latency + size / bandwidth and takes the fastest (NCCL 2.19, src/graph/tuning.cc). This module does
the same with the bytes that the algorithms state and with constants (topologies/backends/nccl.toml)
that were fitted to published nccl-tests by `benchmarks.published_nccl`. A constant belongs to a GPU
generation or to a kind of network, never to a cluster, a group or a size.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

from sim.collectives.interconnect import CallCost, CollectiveCall, on_levels, refused
from sim.collectives.schedule import LevelLoads, LevelSteps
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.units import Bytes, BytesPerSecond, Ge, Seconds, Share
from sim.program.operations import AUTO

if TYPE_CHECKING:
    from sim.program.routed import Routed

NcclProtocol = Literal["ll", "ll128", "simple"]
PROTOCOLS: tuple[NcclProtocol, ...] = ("ll", "ll128", "simple")


@dataclass(frozen=True, slots=True, kw_only=True)
class PerProtocol:
    """A number for each protocol, such as its share of the bandwidth.

    LL stores a flag beside every 4 bytes, LL128 a flag beside 120; Simple synchronises by chunk.
    """

    ll: float
    ll128: Annotated[float, Ge(0)]
    simple: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Seconds of one dependent step in each protocol, without the time of its bytes."""

    ll: Seconds
    ll128: Seconds
    simple: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Fill:
    """A pipeline fills in `time` with the largest chunks, in half that time for a message of `half`
    bytes. Chunks, and with them the fill, grow with the message until the buffers are full.
    """

    time: Seconds = 0.0
    half: Bytes = 1.0

    def seconds(self, size: float) -> float:
        return self.time * size / (size + self.half)


@dataclass(frozen=True, slots=True, kw_only=True)
class AllToAll:
    """How an all-to-all in a node uses a port: the `share` of the line rate that it reaches, and
    its `fill`. Each byte of a rank's own part takes as long as sending `touch` bytes."""

    share: float
    touch: float = 0.0
    fill: Fill = Fill()


@dataclass(frozen=True, slots=True, kw_only=True)
class Relay:
    """A kernel that passes routed items on. `launch` is its time if it moves nothing, `node` its
    additional time for each notified node. An SM takes `item` for each item and moves `sm` bytes of
    copies a second. All SMs together reach at most the `share` of a port's line rate."""

    launch: Seconds
    node: Seconds = 0.0
    item: Seconds
    sm: BytesPerSecond
    share: Share = 1.0

    def seconds(self, items: float, routed: "Routed", parts: int) -> float:
        """Seconds of `routed.sms` SMs for `items` items: items / sms x (item + copies / sm). Each
        item has a copy for each of the `parts` (ranks of a node, or nodes) that it reaches.

        >>> from sim.program.routed import Routed
        >>> relay = Relay(launch=30e-6, item=1e-6, sm=25e9, share=0.7)
        >>> one = Routed(choices=1, among=8, item=25e3, sms=20)
        >>> round(1e6 * relay.seconds(4000.0, one, parts=8))
        400
        """
        each = self.item + routed.reached(parts) * routed.item / self.sm
        return items / routed.sms * each


@dataclass(frozen=True, slots=True, kw_only=True)
class Relays:
    """The kernels that `dispatch` items, and the kernels that `combine` (sum) the returned items.
    Groups on several nodes use the kernels `far_dispatch` and `far_combine`. On more than `few`
    nodes, NICs carry only the share `nic` of their usual rate."""

    dispatch: Relay
    combine: Relay
    far_dispatch: Relay | None = None
    far_combine: Relay | None = None
    few: int = 0
    nic: Share = 1.0

    def of(self, routed: "Routed", nodes: int) -> Relay | None:
        """The kernels that pass these items on; None where they are not known."""
        if nodes > 1:
            return self.far_combine if routed.summed else self.far_dispatch
        return self.combine if routed.summed else self.dispatch

    def carried(self, nodes: int) -> float:
        """The share of their usual rate that NICs carry in a group of `nodes` nodes."""
        return self.nic if nodes > self.few > 0 else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConstants:
    """The constants of a GPU generation: how much of a port's line rate its SMs and NVLink
    achieve.

    `launch` is the time of a kernel that moves nothing. `ring`, `tree`, `nvls`, `nvls_tree` and
    `peer` are fractions of the line rate in the Simple protocol; other protocols reach the share
    `keeps` (trees: `tree_keeps`) of them. `relay` is the fraction for kernels that pass routed
    items on (default: `peer`); `relays` describes such kernels where their SMs limit them. For a
    ring member, reading and writing a byte of its own part of the buffer takes as long as sending
    `touch` bytes. `all_to_all` describes all-to-alls where they were measured; otherwise they
    are like `peer`. `channels` is how many CTAs a kernel has within a node, each with an SM to
    itself; `channel` is the rate of a message on one channel (B/s), where it is known. `ll_most` is
    the bus bandwidth that LL reaches on one, two and more nodes; `keeps` of LL then holds for small
    messages only. `nvls_fill` is the fill of S/g bytes in each of the g members of a node, which
    take turns. The steps `hop` were measured between ports about `latency` apart (one hop of
    NVLink, hwLat of LL in tuning.cc); the actual latency makes them longer or shorter.
    """

    launch: Seconds
    hop: StepTime
    keeps: PerProtocol
    tree_keeps: PerProtocol
    latency: Seconds = 0.6e-6
    ring: float
    tree: float
    peer: float
    relay: float | None = None
    relays: Relays | None = None
    touch: float = 0.0
    all_to_all: AllToAll | None = None
    channels: int = 0
    channel: BytesPerSecond = 0.0
    ll_most: tuple[BytesPerSecond, ...] = ()
    fill: Fill = Fill()
    nvls: float = 0.0
    nvls_tree: float = 0.0
    nvls_hop: Seconds = 0.0
    nvls_fill: Fill = Fill()


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkConstants:
    """A kind of network: software and hardware between two nodes.

    `launch` is how long a kernel waits for its proxies, once. `hop` is a dependent step. `overhead`
    is a proxy's time for each step of a ring through the network, including steps inside a node
    that wait for the proxy (tuning.cc, netOverhead). `fraction` is the share of the NICs' line rate
    that bulk traffic reaches, of which a protocol `keeps` a part; a protocol that keeps nothing is
    not used. `fill` is the pipeline fill of one level of a tree. The steps were measured on
    networks of about `latency` one way; the actual latency makes them longer or shorter.
    """

    launch: Seconds
    latency: Seconds
    hop: StepTime
    keeps: PerProtocol
    fraction: float
    overhead: Seconds = 0.0
    fill: Fill = Fill()


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclConstants:
    """The content of topologies/backends/nccl.toml."""

    node: Mapping[str, NodeConstants]
    network: Mapping[str, NetworkConstants]


PER_NIC = 2  # CTAs for each NIC (S. Jeaugey, NVIDIA/nccl issue 689: 2 for a single NIC, 16 for 8)
# Received bytes are written into a buffer, read there, and combined with or written to the user's
# data ("it can be 3x", S. Jeaugey, NVIDIA/nccl issue 1428).
MEMORY_PASSES = 3.0
# Payload of a step of LL: 512 threads have 8 lines of 16 bytes each, half of them flags (NCCL 2.19,
# src/init.cc, computeBuffSizes, and src/enqueue.cc: chunks of LL are half a step of the buffer).
LL_CHUNK = 512 * 8 * 16 / 2
LL_OF_PEERS = 2.0**14  # bytes; larger messages use Simple (NCCL_P2P_LL_THRESHOLD)
LL_OF_RING, LL_OF_TREE = 1.0 / 2.0, 1.0 / 3.8  # LL / Simple, bandwidths (src/graph/tuning.cc)
_JOIN = 4.0  # order of the norm that joins the times of SMs and of ports
MOST_OF_A_CHANNEL = 32 * 2.0**19  # bytes; larger messages take more channels (`_of_channels`)

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
        self,
        name: str,
        protocol: NcclProtocol,
        loads: LevelLoads,
        reached: float,
        latency: float,
        timed: LevelLoads | None = None,
    ) -> CallCost:
        """The cost, in bytes at line rate: bytes count twice if half of the rate is `reached`.
        Links carry `loads`, but are busy as if they carried `timed` (default: `loads`)."""
        sent, loads = loads, timed or loads
        port = reached * self._kept(name, protocol, reached)
        nic = self.network.fraction * getattr(self.network.keeps, protocol)
        received = max(loads.port, loads.nic / self.call.shape.per_node)
        return CallCost(
            latency=latency,
            port=self.call.size * loads.port / port,
            nic=self.call.size * loads.nic / nic,
            sent_port=self.call.size * sent.port,
            sent_nic=self.call.size * sent.nic,
            algorithm=name,
            protocol=protocol,
            ctas=self.ctas,
            memory=MEMORY_PASSES * self.call.size * received,
        )

    def _kept(self, name: str, protocol: NcclProtocol, reached: float) -> float:
        """The share of `reached` that a protocol keeps. LL's share is fitted to small messages and
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
        """How many SMs the call's kernel holds: an SM for each channel."""
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
        """Pickle the backend without its cache: another process fills a cache of its own."""
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
    """Costs of an algorithm; an algorithm that NCCL lacks is assumed as efficient as rings."""
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
    kind, shape = nccl_call.call.kind, nccl_call.call.shape
    loads, steps = on_levels(name, kind, shape)
    latency = nccl_call.latency(steps, protocol, nccl_call.network.overhead)
    if protocol == "simple":
        latency += nccl_call.node.fill.seconds(nccl_call.call.size)
    share = nccl_call.node.ring * nccl_call.cabled
    timed = _with_own_part(nccl_call, loads, nccl_call.node.touch)
    if name == "ring" and kind in ("broadcast", "reduce"):  # a chain has one hop less than members
        port = loads.port * (1.0 - (shape.nodes == 1) / shape.ranks)
        loads = LevelLoads(port=port, nic=loads.nic * (1.0 - 1.0 / shape.nodes))
    return nccl_call.cost(name, protocol, loads, share, latency, timed)


def _with_own_part(nccl_call: NcclCall, loads: LevelLoads, touch: float) -> LevelLoads:
    """Loads plus the copy of a rank's own part (S/n), if other parts pass through ports."""
    part = touch / nccl_call.call.shape.ranks if loads.port else 0.0
    return LevelLoads(port=loads.port + part, nic=loads.nic)


def _tree(nccl_call: NcclCall, protocol: NcclProtocol) -> CallCost:
    loads, steps = on_levels("tree", nccl_call.call.kind, nccl_call.call.shape)
    latency = nccl_call.latency(steps, protocol)
    if protocol == "simple":
        latency += nccl_call.node.fill.seconds(nccl_call.call.size)
        latency += steps.inter * nccl_call.network.fill.seconds(nccl_call.call.size)
    return nccl_call.cost("tree", protocol, loads, nccl_call.node.tree * nccl_call.cabled, latency)


def _nvls(nccl_call: NcclCall) -> CallCost:
    from sim.collectives.algorithms import nvls

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
    """The cost of grouped sends and receives, such as an all-to-all. They go straight to their
    peers; routed items are passed on within nodes (DeepEP)."""
    call, node = nccl_call.call, nccl_call.node
    loads, steps = on_levels(name, call.kind, call.shape)
    message = call.size if call.kind in _SINGLE else call.size / call.shape.ranks
    if call.kind == "scatter" and loads.nic:  # through neighbours to the NICs of receivers (PXN)
        loads = LevelLoads(port=1.0 - 1.0 / call.shape.ranks, nic=loads.nic)
    timed = loads
    if call.kind in ("gather", "sendrecv") and loads.nic:  # through the receiver's own NIC
        nics = call.interconnect.nic_share(call.shape.per_node) / call.interconnect.nic_bandwidth
        timed = LevelLoads(port=loads.port, nic=loads.nic * nics)
    protocol: NcclProtocol = "ll" if message <= LL_OF_PEERS and call.routed is None else "simple"
    latency, share = nccl_call.latency(steps, protocol), node.peer
    if call.routed is not None:
        from sim.collectives.algorithms import relayed

        name, loads = "relayed", relayed.loads(call.routed, call.shape)
        timed = loads
        share = node.relay or share
        relay = node.relays.of(call.routed, call.shape.nodes) if node.relays else None
        if node.relays and relay and call.routed.sms and loads.port:
            timed = LevelLoads(
                port=loads.port, nic=loads.nic / node.relays.carried(call.shape.nodes)
            )
            return _relayed(nccl_call, call.routed, loads, relay, timed)
    elif call.kind == "all_to_all" and loads.port and node.all_to_all:
        timed = _with_own_part(nccl_call, loads, node.all_to_all.touch)
        latency += node.all_to_all.fill.seconds(call.size)
        share = node.all_to_all.share
    share = min(share, _of_channels(nccl_call))
    return replace(nccl_call.cost(name, "simple", loads, share, latency, timed), protocol=protocol)


def _relayed(
    nccl_call: NcclCall, routed: "Routed", loads: LevelLoads, relay: Relay, timed: LevelLoads
) -> CallCost:
    """The cost of routed items that SMs pass on. The times of SMs and ports overlap like the times
    of products and memory (the norm of order 4 of `sim.hardware.kernels.rates`)."""
    call = nccl_call.call
    line, parts = call.interconnect.port_bandwidth, call.shape.nodes
    parts = parts if parts > 1 else call.shape.ranks
    on_sms = relay.seconds(call.size / routed.item, routed, parts) * line
    on_port = call.size * loads.port / relay.share
    reached = call.size * loads.port / (on_sms**_JOIN + on_port**_JOIN) ** (1 / _JOIN)
    latency = relay.launch + relay.node * call.shape.nodes
    return nccl_call.cost("relayed", "simple", loads, reached, latency, timed)


def _of_channels(nccl_call: NcclCall) -> float:
    """The share of a port's bandwidth that the channels of messages within a node carry.

    A communicator's channels, rounded up to a power of two, are divided among its ranks. A message
    doubles its channels while each carries more than 32 chunks of 512 KiB, up to four times its
    share (NCCL 2.18, src/enqueue.cc, scheduleP2pTasksToPlan, and src/graph/paths.cc,
    ncclTopoComputeP2pChannels). A communicator larger than a node has two channels for each peer.
    In an all-to-all every rank sends n - 1 messages of S/n at the same time.
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


def _named(known: Mapping[str, C], name: str, noun: str) -> C:
    if name not in known:
        raise InputError("nccl backend", f"no {noun} named {name!r}", f"known: {', '.join(known)}")
    return known[name]
