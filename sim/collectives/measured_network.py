"""The state of a network: what measured collectives say that the library's constants do not.

A network may carry less than the library reaches on a healthy one: every time is the library's
divided by a `share`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from sim.collectives.algorithms import direct, ring
from sim.collectives.interconnect import CallCost
from sim.collectives.schedule import CollectiveKind, offered
from sim.program.checks import MeasuredBandwidth


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkState:
    """`share` of what the library reaches through the network."""

    share: float = 1.0

    def cost(self, cost: CallCost) -> CallCost:
        """The cost of a call in this state: bytes through the network are divided by `share`."""
        return cost if self == HEALTHY else replace(cost, nic=cost.nic / self.share)


HEALTHY = NetworkState()


def bus_factor(kind: CollectiveKind, ranks: int) -> float:
    """nccl-tests' busbw / algbw (its PERFORMANCE.md): what a ring, or where it has no such
    collective every pair, sends over its busiest link for each byte.

    >>> bus_factor("all_reduce", 8), bus_factor("all_to_all", 8), bus_factor("broadcast", 8)
    (1.75, 0.875, 1.0)
    """
    cost = ring.cost if kind in offered(ring) else direct.cost
    return cost(kind, ranks).bytes


def seconds_of(measured: MeasuredBandwidth) -> float:
    """How long a collective took of which the bus bandwidth is known."""
    sent = bus_factor(measured.collective, measured.gpus) * measured.size
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
