"""Constants of NCCL's cost model of GPUs and networks, as in topologies/backends/nccl.toml.

A constant belongs to a GPU generation or to a kind of network, never to a cluster, a group or a
size. They were fitted on published nccl-tests by `benchmarks.published_nccl`.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from sim.config.bounds import Ge
from sim.config.dataclass import dataclass
from sim.config.units import Bytes, BytesPerSecond, Seconds, Share
from sim.program.routed import Routed

NcclProtocol = Literal["ll", "ll128", "simple"]
PROTOCOLS: tuple[NcclProtocol, ...] = ("ll", "ll128", "simple")


@dataclass(frozen=True, slots=True, kw_only=True)
class PerProtocol:
    """A number for each protocol, such as its share of the bandwidth.

    LL stores a flag beside every 4 bytes, LL128 one beside 120; Simple synchronises by chunk.
    """

    ll: float
    ll128: Annotated[float, Ge(0)]
    simple: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Seconds of one dependent step in each protocol, without the bytes."""

    ll: Seconds
    ll128: Seconds
    simple: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Fill:
    """A pipeline fills in `time` at the largest chunks, in half that time at messages of `half`.

    Chunks grow with the message until the buffers are full, and so does the fill.
    """

    time: Seconds = 0.0
    half: Bytes = 1.0

    def seconds(self, size: float) -> float:
        return self.time * size / (size + self.half)


@dataclass(frozen=True, slots=True, kw_only=True)
class AllToAll:
    """What an all-to-all in a node makes of a port: the `share` of the line rate that it reaches,
    the `touch` of a rank's own part (bytes sent for each byte of it), and how it fills."""

    share: float
    touch: float = 0.0
    fill: Fill = Fill()


@dataclass(frozen=True, slots=True, kw_only=True)
class Relay:
    """Kernels that pass routed items on: `launch` is a kernel that moves nothing, `node` what it
    takes longer for each node that is notified, `item` what an SM spends on each, `sm` the bytes of
    copies that it moves a second, `share` what all of them reach of a port's line rate at most."""

    launch: Seconds
    node: Seconds = 0.0
    item: Seconds
    sm: BytesPerSecond
    share: Share = 1.0

    def seconds(self, items: float, routed: Routed, parts: int) -> float:
        """What `routed.sms` SMs take for so many items: items / sms x (item + copies / sm), a copy
        for each of the parts (ranks of a node, or nodes) that an item reaches.

        >>> relay = Relay(launch=30e-6, item=1e-6, sm=25e9, share=0.7)
        >>> one = Routed(choices=1, among=8, item=25e3, sms=20)
        >>> round(1e6 * relay.seconds(4000.0, one, parts=8))
        400
        """
        each = self.item + routed.reached(parts) * routed.item / self.sm
        return items / routed.sms * each


@dataclass(frozen=True, slots=True, kw_only=True)
class Relays:
    """Those that `dispatch` items, and those that `combine` (sum) what comes back; `far_...` are
    those of groups on several nodes. On more than `few` nodes adapters carry no more than `nic` of
    what they carry otherwise."""

    dispatch: Relay
    combine: Relay
    far_dispatch: Relay | None = None
    far_combine: Relay | None = None
    few: int = 0
    nic: Share = 1.0

    def of(self, routed: Routed, nodes: int) -> Relay | None:
        """The kernels of such items; None where they are not known."""
        if nodes > 1:
            return self.far_combine if routed.summed else self.far_dispatch
        return self.combine if routed.summed else self.dispatch

    def carried(self, nodes: int) -> float:
        """The share of what adapters carry otherwise that they carry among so many nodes."""
        return self.nic if nodes > self.few > 0 else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConstants:
    """The constants of a GPU generation: the part of a port's line rate that its SMs and NVLink
    achieve.

    `launch` is a kernel that moves nothing; `ring`, `tree`, `nvls`, `nvls_tree` and `peer` are
    fractions of the line rate in the Simple protocol (`relay` that of kernels which pass routed
    items on, as `peer` unless given; `relays` those whose SMs limit them), of which `keeps`
    (`tree_keeps`) remains in the others; `touch` is what a ring's members read and write of their
    own part of the buffer in addition to what they send, in bytes sent for each byte of it;
    `all_to_all` are all-to-alls where they were measured, as good as `peer` otherwise; `channels`
    how many CTAs a kernel has within a node, each with an SM to itself; `channel` what each of them
    carries of a message (B/s), where it is known; `ll_most` is the bus bandwidth that LL reaches on
    one, two and more nodes, where `keeps` of LL is that of small messages; `nvls_fill` is that of
    S/g in each of the g members of a node, which take turns. The steps were measured between ports
    about `latency` apart (one hop of NVLink, hwLat of LL in tuning.cc); the actual latency makes
    them longer or shorter.
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

    `launch` is how long a kernel waits for its proxies, once; `hop` a dependent step; `overhead`
    what a proxy spends on each step of a ring through the network, including the steps inside a
    node that wait for it (tuning.cc, netOverhead); `fraction` the share of the NICs' line rate that
    bulk traffic reaches; `fill` the pipeline of one level of a tree. The steps were measured on
    networks of about `latency` one way; the actual latency makes them longer or shorter. A protocol
    of which nothing `keeps` is not used.
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
