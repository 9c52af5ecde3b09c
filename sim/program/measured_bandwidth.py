"""Collectives that were measured on a cluster: the state that its network was in."""

from dataclasses import dataclass
from typing import Literal

from sim.config.units import Bytes, BytesPerSecond

Measurable = Literal["all_reduce", "all_gather", "reduce_scatter"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredBandwidth:
    """What a collective of `size` bytes (as nccl-tests counts them) reached over `gpus` devices.

    `bus_bandwidth` is nccl-tests' busbw: bytes that a ring sends over each of its links a second.
    """

    collective: Measurable
    gpus: int
    size: Bytes
    bus_bandwidth: BytesPerSecond
