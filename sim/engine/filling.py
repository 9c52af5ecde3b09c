"""Weighted max-min fair rates by progressive filling (Bertsekas and Gallager, Data Networks).

Rates of all flows grow together until a link is full; its flows keep theirs, the others go on.
"""

from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Any

from simpy.core import SimTime

Loads = tuple[tuple[int, float], ...]
Arrived = Callable[[Any], None]
Capacities = Sequence[float] | Mapping[int, float]

_EPSILON = 1e-12


class Flow:
    """Bytes on their way; `arrived(value)` is called when the last of them is there."""

    __slots__ = ("alarm", "arrived", "loads", "rate", "remaining", "serial", "since", "value")

    def __init__(
        self,
        arrived: Arrived,
        value: Any,
        size: float,
        loads: Loads,
        serial: int,
        since: SimTime,
    ) -> None:
        self.arrived, self.value = arrived, value
        self.remaining, self.loads, self.serial = size, loads, serial
        self.rate, self.since, self.alarm = 0.0, since, 0


def fair_rates(flows: dict[int, Flow], capacities: Capacities) -> dict[int, float]:
    """Weighted max-min fair rates (B/s) of flows by progressive filling, fullest link first.

    Every flow's rate is limited by at least one full link on which no other flow is faster. The
    level at which a link is full only rises while flows elsewhere are frozen, so a heap of old
    levels finds the lowest.
    """
    left, demand, on_link = _filling(flows, capacities)
    levels = [(left[link] / demand[link], link) for link in on_link]
    heapify(levels)
    rates: dict[int, float] = {}
    while len(rates) < len(flows):
        level, link = heappop(levels)
        waiting = [serial for serial in on_link[link] if serial not in rates]
        if not waiting:
            continue
        now = left[link] / demand[link]
        if now > level * (1.0 + _EPSILON):
            heappush(levels, (now, link))
            continue
        for serial in waiting:
            rates[serial] = now
            for other, load in flows[serial].loads:
                left[other] = max(left[other] - load * now, 0.0)
                demand[other] -= load
    return rates


def _filling(
    flows: dict[int, Flow], capacities: Capacities
) -> tuple[dict[int, float], dict[int, float], dict[int, list[int]]]:
    """Per link: capacity, the load of all flows on it, and which they are."""
    left: dict[int, float] = {}
    demand: dict[int, float] = {}
    on_link: dict[int, list[int]] = {}
    for serial, flow in flows.items():
        for link, load in flow.loads:
            if link not in left:
                left[link], demand[link], on_link[link] = capacities[link], 0.0, []
            demand[link] += load
            on_link[link].append(serial)
    return left, demand, on_link
