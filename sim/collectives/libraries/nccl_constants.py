"""What NCCL's cost model knows of GPUs and networks: the content of topologies/backends/nccl.toml.

A constant belongs to a GPU generation or to a kind of network, never to a cluster, a group or a
size. They were fitted on published nccl-tests by `sim.calibration.fitting.published_nccl`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from sim.config.units import Bytes, Seconds

Protocol = Literal["ll", "ll128", "simple"]
PROTOCOLS: tuple[Protocol, ...] = ("ll", "ll128", "simple")


@dataclass(frozen=True, slots=True, kw_only=True)
class Per:
    """One number for each protocol, such as the fraction of the bandwidth that it keeps.

    LL stores a flag beside every 4 bytes, LL128 one beside 120; Simple synchronises by chunk.
    """

    ll: float
    ll128: float
    simple: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """Seconds of one dependent step in each protocol, without the bytes."""

    ll: Seconds
    ll128: Seconds
    simple: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Fill:
    """A pipeline fills in `time` at the largest chunks, in half of it at messages of `half`.

    Chunks grow with the message until the buffers are full, and the fill with them.
    """

    time: Seconds = 0.0
    half: Bytes = 1.0

    def seconds(self, size: float) -> float:
        return self.time * size / (size + self.half)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A GPU generation: what its SMs and NVLink make of the line rate of a port.

    `launch` is a kernel that moves nothing; `ring`, `tree`, `nvls`, `nvls_tree` and `peer` are
    fractions of the line rate in the Simple protocol, of which `keeps` (`tree_keeps`) remains in
    the others; `touch` is what the ring's members move besides the wire in one turn around it, in
    bytes for each byte of the buffer. The steps were measured between ports about `latency` apart
    (one hop of NVLink, hwLat of LL in tuning.cc); a fabric's own makes them longer or shorter.
    """

    launch: Seconds
    hop: Hop
    keeps: Per
    tree_keeps: Per
    latency: Seconds = 0.6e-6
    ring: float
    tree: float
    peer: float
    touch: float = 0.0
    fill: Fill = Fill()
    nvls: float = 0.0
    nvls_tree: float = 0.0
    nvls_hop: Seconds = 0.0
    nvls_fill: Fill = Fill()


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A kind of network: software and hardware between two nodes.

    `launch` is what a kernel waits for its proxies once, `hop` a dependent step, `overhead` what a
    proxy spends on each step of a ring through the network, also on those inside a node that wait
    for it (tuning.cc, netOverhead), `fraction` what bulk traffic reaches of the NICs' line rate,
    `fill` the pipeline of one level of a tree. The steps were measured on networks of about
    `latency` one way; a fabric's own makes them longer or shorter.
    """

    launch: Seconds
    latency: Seconds
    hop: Hop
    keeps: Per
    fraction: float
    overhead: Seconds = 0.0
    fill: Fill = Fill()


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """The content of topologies/backends/nccl.toml."""

    node: Mapping[str, Node]
    network: Mapping[str, Network]
