"""The state of a network: what measured collectives say that the library's constants do not.

Two things make a network slow. It may carry less: every time is the library's divided by a `share`.
Or each step of a ring may take at least `step` seconds, whatever it carries; times then grow with
the number of ranks. Measurements of several sizes or numbers of ranks tell them apart: the
explanation is taken on which they agree better.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log
from statistics import median

from sim.collectives.algorithms import ring
from sim.collectives.group import GroupShape
from sim.collectives.interconnect import CallCost, CollectiveCall
from sim.collectives.schedule import CollectiveKind, offered
from sim.program.measured_bandwidth import MeasuredBandwidth


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkState:
    """`share` of what the library reaches through the network, seconds of a `step` at least."""

    share: float = 1.0
    step: float = 0.0

    def cost(self, cost: CallCost, call: CollectiveCall) -> CallCost:
        """What a call costs in this state, in a job of several nodes.

        Bytes through the network are divided by `share`. Nothing large, also within a node, ends
        before the steps of a ring have; what is small enough for a tree is not held up.
        """
        if self == HEALTHY or call.shape.ranks == 1:
            return cost
        cost = replace(cost, nic=cost.nic / self.share)
        if cost.algorithm == "tree":
            return cost
        least = self.step * _steps(call.kind, call.shape.ranks)
        return replace(cost, latency=cost.latency + max(least - call.duration(cost), 0.0))


HEALTHY = NetworkState()


def seconds_of(measured: MeasuredBandwidth) -> float:
    """Bytes that a ring sends over each of its links / bus bandwidth (nccl-tests' busbw)."""
    sent = ring.cost(measured.collective, measured.gpus).bytes * measured.size
    return sent / measured.bus_bandwidth


def _steps(kind: CollectiveKind, ranks: int) -> int:
    """Steps along a ring; 1 of what goes straight to its peers."""
    return ring.steps(kind, GroupShape(ranks=ranks)).intra if kind in offered(ring) else 1


def state_of(measured: Sequence[MeasuredBandwidth], expected: Sequence[float]) -> NetworkState:
    """The state that explains measurements of which the library `expected` the seconds.

    One measurement, or several that ask for about the same share, are bandwidth that is missing;
    those that are quicker than expected ask for nothing.

    >>> half = MeasuredBandwidth(collective="all_gather", gpus=16, size=2**30, bus_bandwidth=1e11)
    >>> state_of([half], [seconds_of(half) / 2])
    NetworkState(share=0.5, step=0.0)
    """
    taken = [(m, seconds_of(m), t) for m, t in zip(measured, expected, strict=True)]
    slow = [(m, seconds, t) for m, seconds, t in taken if seconds > t]
    if not slow:
        return HEALTHY
    shares = [t / seconds for _, seconds, t in slow]
    steps = [seconds / _steps(m.collective, m.gpus) for m, seconds, _ in slow]
    if _spread(steps) < _spread(shares):
        return NetworkState(step=median(steps))
    return NetworkState(share=median(shares))


def _spread(values: Sequence[float]) -> float:
    return log(max(values) / min(values))
