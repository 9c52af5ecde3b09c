"""Flows that share links by weighted max-min fairness: the one mechanism behind all traffic.

A flow moves `size` bytes and loads each link l it uses with `load_l` bytes per byte of progress.
Rates x are the weighted max-min fair ones under  sum_f load_fl x_f <= capacity_l  (Bertsekas and
Gallager, Data Networks, section 6.5.2): grow all rates together, freeze the flows of a link when
it is full, go on with the rest. A ring all-reduce is one flow, a pipeline send another, so
contention between them is found, not typed in.

Rates change when a flow starts or ends, and only where that has an effect: the flows on its links
get new rates, and more join them as long as one has no full link on which it is among the
fastest. That condition is what makes rates max-min fair, so the answer is the exact one. All
changes of one instant are settled together, flows in the order in which they started.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Any

import simpy
from simpy.core import SimTime
from simpy.events import Event, EventPriority

Loads = tuple[tuple[int, float], ...]
Arrived = Callable[[Any], None]
Capacities = Sequence[float] | Mapping[int, float]

_AFTER_ALL_OF_THIS_INSTANT = EventPriority(2)  # simpy's own events have priority 0 or 1
_EPSILON = 1e-12
_FULL = 1e-9


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
        now: SimTime,
    ) -> None:
        self.arrived, self.value = arrived, value
        self.remaining, self.loads, self.serial = size, loads, serial
        self.rate, self.since, self.alarm = 0.0, now, 0


class Network:
    """Links with a capacity in B/s each, and the flows that are on them now."""

    def __init__(self, env: simpy.Environment, capacities: Sequence[float]) -> None:
        self.env = env
        self.capacities = capacities
        self._on_link: list[dict[int, Flow]] = [{} for _ in capacities]
        self._taken = [0.0 for _ in capacities]
        self._affected: dict[int, Flow] = {}  # flows whose rates are to be computed anew
        self._settling = False
        self._started = 0
        self._watching: list[list[Callable[[Any], Any]]] = [[] for _ in capacities]

    def idle(self, links: Iterable[int]) -> bool:
        """Whether nothing is on any of these links, nor anybody watching who has traffic there."""
        return not any(self._on_link[link] or self._watching[link] for link in links)

    def watch(self, links: Iterable[int], act: Callable[[Any], Any]) -> None:
        """Call `act` as soon as a flow comes upon any of these links."""
        for link in links:
            self._watching[link].append(act)

    def unwatch(self, links: Iterable[int], act: Callable[[Any], Any]) -> None:
        """Stop watching."""
        for link in links:
            self._watching[link].remove(act)

    def start(self, size: float, loads: Loads, arrived: Arrived, value: Any = None) -> None:
        """Put `size` bytes on the links of `loads` now and call `arrived(value)` at the end."""
        self._started += 1
        flow = Flow(arrived, value, size, loads, self._started, self.env.now)
        alone, watching = True, []
        for link, _ in loads:
            alone = alone and not self._on_link[link]
            self._on_link[link][flow.serial] = flow
            watching += self._watching[link]
        if alone:
            self._set_rate(flow, min(self.capacities[link] / load for link, load in loads))
        else:
            self._settle_later({flow.serial: flow})
        for act in dict.fromkeys(watching):
            act(None)

    def _set_rate(self, flow: Flow, rate: float) -> None:
        now = self.env.now
        flow.remaining -= flow.rate * (now - flow.since)
        self._take(flow, rate - flow.rate)
        flow.since, flow.rate = now, rate
        flow.alarm += 1
        wake = self.env.timeout(max(flow.remaining, 0.0) / rate, (flow, flow.alarm))
        then(wake, self._arrive)

    def _take(self, flow: Flow, more: float) -> None:
        for link, load in flow.loads:
            self._taken[link] += load * more

    def _full(self, link: int, taken: float) -> bool:
        return taken >= self.capacities[link] * (1.0 - _FULL)

    def _arrive(self, wake: Event) -> None:
        flow, alarm = carried(wake)
        if alarm != flow.alarm:
            return  # the rate has changed since this alarm was set
        affected: dict[int, Flow] = {}
        for link, _ in flow.loads:
            on_link = self._on_link[link]
            del on_link[flow.serial]
            if on_link and self._full(link, self._taken[link]):
                affected.update(on_link)
        self._take(flow, -flow.rate)
        for link, _ in flow.loads:
            if not self._on_link[link]:
                self._taken[link] = 0.0  # and no rounding is left behind
        self._affected.pop(flow.serial, None)
        if affected:
            self._settle_later(affected)
        flow.arrived(flow.value)

    def _settle_later(self, affected: dict[int, Flow]) -> None:
        if not self._settling:
            self._settling = True
            end_of_instant = Event(self.env)
            end_of_instant._ok, end_of_instant._value = True, None
            then(end_of_instant, self._settle)
            self.env.schedule(end_of_instant, priority=_AFTER_ALL_OF_THIS_INSTANT)
        self._affected.update(affected)

    def _settle(self, _: Event) -> None:
        affected, self._affected, self._settling = self._affected, {}, False
        while affected:
            affected = dict(sorted(affected.items()))
            left = self._left_by_others(affected)
            rates = fair_rates(affected, left)
            more = self._also_affected(affected, rates, left)
            if not more:
                break
            affected.update(more)
        for serial, flow in affected.items():
            if abs(rates[serial] - flow.rate) > _EPSILON * rates[serial]:
                self._set_rate(flow, rates[serial])

    def _left_by_others(self, affected: dict[int, Flow]) -> dict[int, float]:
        """Per link of some flows, the capacity that all other flows leave to them."""
        left: dict[int, float] = {}
        for flow in affected.values():
            for link, load in flow.loads:
                if link not in left:
                    left[link] = self.capacities[link] - self._taken[link]
                left[link] += load * flow.rate
        return {link: max(free, 0.0) for link, free in left.items()}

    def _also_affected(
        self, affected: dict[int, Flow], rates: dict[int, float], left: dict[int, float]
    ) -> dict[int, Flow]:
        """Other flows whose rates change too: on links that were full or have become so, those
        without a bottleneck, and all that share the link with an affected flow without one."""
        after = {link: self.capacities[link] - free for link, free in left.items()}
        for serial, flow in affected.items():
            for link, load in flow.loads:
                after[link] += load * rates[serial]
        more: dict[int, Flow] = {}
        for link, taken in after.items():
            if self._full(link, self._taken[link]) or self._full(link, taken):
                on_link = self._on_link[link]
                if len(on_link) > sum(serial in affected for serial in on_link):
                    more.update(self._affected_on(link, affected, rates, after))
        return more

    def _affected_on(
        self, link: int, affected: dict[int, Flow], rates: dict[int, float], after: dict[int, float]
    ) -> dict[int, Flow]:
        on_link = self._on_link[link]
        beside = {serial: flow for serial, flow in on_link.items() if serial not in affected}
        for serial, flow in on_link.items():
            if serial in affected and not self._has_bottleneck(flow, rates[serial], rates, after):
                return beside
        return {
            serial: flow
            for serial, flow in beside.items()
            if not self._has_bottleneck(flow, flow.rate, rates, after)
        }

    def _has_bottleneck(
        self, flow: Flow, rate: float, rates: dict[int, float], after: dict[int, float]
    ) -> bool:
        """Whether a flow has a bottleneck: a full link on which no flow is faster."""
        for link, _ in flow.loads:
            if self._full(link, after.get(link, self._taken[link])):
                on_link = self._on_link[link].items()
                fastest = max(rates.get(serial, other.rate) for serial, other in on_link)
                if rate >= fastest * (1.0 - _FULL):
                    return True
        return False


def then(event: Event, act: Callable[[Event], None]) -> None:
    """Call `act` when the event fires."""
    assert event.callbacks is not None, "the event has fired already"
    event.callbacks.append(act)


def carried(event: Event) -> Any:
    """The value that a fired event brings."""
    return event.value


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
