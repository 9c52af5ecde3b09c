"""The state of a network, judged by collectives that were measured on it.

A network may carry less than the library reaches on a healthy network: the bytes through it are
then divided by a `share`."""

from collections.abc import Sequence
from statistics import median

from sim.collectives.algorithms import direct, ring
from sim.collectives.interconnect import HEALTHY, NetworkState
from sim.collectives.schedule import (
    CollectiveKind,
    offered,
)
from sim.program.operations import MeasuredBandwidth


def bus_factor(kind: CollectiveKind, ranks: int) -> float:
    """nccl-tests' busbw / algbw (see its PERFORMANCE.md): bytes on the busiest link of a ring for
    each byte of the collective. Where rings lack the collective, direct sends count.

    >>> bus_factor("all_reduce", 8), bus_factor("all_to_all", 8), bus_factor("broadcast", 8)
    (1.75, 0.875, 1.0)
    """
    cost = ring.cost if kind in offered(ring) else direct.cost
    return cost(kind, ranks).bytes


def seconds_of(measured: MeasuredBandwidth) -> float:
    """The seconds of a measured collective, from its bus bandwidth."""
    sent = bus_factor(measured.collective, measured.gpus) * measured.size
    return sent / measured.bus_bandwidth


def state_of(measured: Sequence[MeasuredBandwidth], expected: Sequence[float]) -> NetworkState:
    """The state that explains `measured` collectives. On a healthy network the library takes the
    `expected` seconds; collectives that were faster are left out.

    >>> half = MeasuredBandwidth(collective="all_gather", gpus=16, size=2**30, bus_bandwidth=1e11)
    >>> state_of([half], [seconds_of(half) / 2])
    NetworkState(share=0.5)
    """
    taken = [(seconds_of(m), t) for m, t in zip(measured, expected, strict=True)]
    shares = [t / seconds for seconds, t in taken if seconds > t]
    return NetworkState(share=median(shares)) if shares else HEALTHY
