"""The state of a network: what measured collectives say that the library's constants do not.

A network may carry less than the library reaches on a healthy one: every time is the library's
divided by a `share`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from sim.collectives.algorithms import ring
from sim.collectives.interconnect import CallCost
from sim.program.measured_bandwidth import MeasuredBandwidth


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkState:
    """`share` of what the library reaches through the network."""

    share: float = 1.0

    def cost(self, cost: CallCost) -> CallCost:
        """What a call costs in this state: bytes through the network are divided by `share`."""
        return cost if self == HEALTHY else replace(cost, nic=cost.nic / self.share)


HEALTHY = NetworkState()


def seconds_of(measured: MeasuredBandwidth) -> float:
    """Bytes that a ring sends over each of its links / bus bandwidth (nccl-tests' busbw)."""
    sent = ring.cost(measured.collective, measured.gpus).bytes * measured.size
    return sent / measured.bus_bandwidth


def state_of(measured: Sequence[MeasuredBandwidth], expected: Sequence[float]) -> NetworkState:
    """The state that explains measurements of which the library `expected` the seconds; those that
    are quicker than expected ask for nothing.

    >>> half = MeasuredBandwidth(collective="all_gather", gpus=16, size=2**30, bus_bandwidth=1e11)
    >>> state_of([half], [seconds_of(half) / 2])
    NetworkState(share=0.5)
    """
    taken = [(seconds_of(m), t) for m, t in zip(measured, expected, strict=True)]
    shares = [t / seconds for seconds, t in taken if seconds > t]
    return NetworkState(share=median(shares)) if shares else HEALTHY
