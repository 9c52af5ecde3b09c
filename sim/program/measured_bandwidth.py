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

    @property
    def seconds(self) -> float:
        """turns (n - 1) / n * size / busbw, with 2 turns for an all-reduce and 1 for its halves."""
        return ring_steps(self.collective, self.gpus) / self.gpus * self.size / self.bus_bandwidth


def ring_steps(kind: str, ranks: int) -> int:
    """Steps of a collective along a ring: n - 1 a turn, of which an all-reduce takes two.

    A message between two ranks is one step, and so is what every rank sends every other at once.

    >>> ring_steps("all_reduce", 8), ring_steps("all_gather", 8), ring_steps("point_to_point", 2)
    (14, 7, 1)
    """
    if kind in ("point_to_point", "all_to_all"):
        return 1
    return (2 if kind == "all_reduce" else 1) * (ranks - 1)
