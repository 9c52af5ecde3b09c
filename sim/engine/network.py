"""Flows that share links by weighted max-min fairness: the one mechanism behind all traffic.

A flow moves `size` bytes and loads each link l it uses with `load_l` bytes per byte of progress.
Rates x are the weighted max-min fair ones under  sum_f load_fl x_f <= capacity_l  (Bertsekas and
Gallager, Data Networks, section 6.5.2): grow all rates together, freeze the flows of a link when
it is full, go on with the rest. A ring all-reduce is one flow, a pipeline send another, so
contention between them is found, not typed in.

Rates change when a flow starts or ends, and only in the connected part that it touches. All
changes of one instant are settled together, in the order in which the flows started.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import simpy
from simpy.core import SimTime
from simpy.events import Event, EventPriority

Loads = tuple[tuple[int, float], ...]
Arrived = Callable[[Any], None]

_AFTER_ALL_OF_THIS_INSTANT = EventPriority(2)  # simpy's own events have priority 0 or 1
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
        self._unsettled: dict[int, Flow] = {}
        self._started = 0

    def start(self, size: float, loads: Loads, arrived: Arrived, value: Any = None) -> None:
        """Put `size` bytes on the links of `loads` now and call `arrived(value)` at the end."""
        self._started += 1
        flow = Flow(arrived, value, size, loads, self._started, self.env.now)
        alone = True
        for link, _ in loads:
            alone = alone and not self._on_link[link]
            self._on_link[link][flow.serial] = flow
        if alone:
            self._set_rate(flow, min(self.capacities[link] / load for link, load in loads))
        else:
            self._settle_later([flow])

    def _set_rate(self, flow: Flow, rate: float) -> None:
        now = self.env.now
        flow.remaining -= flow.rate * (now - flow.since)
        flow.since, flow.rate = now, rate
        flow.alarm += 1
        wake = self.env.timeout(max(flow.remaining, 0.0) / rate, (flow, flow.alarm))
        then(wake, self._arrive)

    def _arrive(self, wake: Event) -> None:
        flow, alarm = carried(wake)
        if alarm != flow.alarm:
            return  # the rate has changed since this alarm was set
        neighbours: dict[int, Flow] = {}
        for link, _ in flow.loads:
            on_link = self._on_link[link]
            del on_link[flow.serial]
            neighbours.update(on_link)
        self._unsettled.pop(flow.serial, None)
        if neighbours:
            self._settle_later(neighbours.values())
        flow.arrived(flow.value)

    def _settle_later(self, flows: Iterable[Flow]) -> None:
        if not self._unsettled:
            end_of_instant = Event(self.env)
            end_of_instant._ok, end_of_instant._value = True, None
            then(end_of_instant, self._settle)
            self.env.schedule(end_of_instant, priority=_AFTER_ALL_OF_THIS_INSTANT)
        self._unsettled.update((flow.serial, flow) for flow in flows)

    def _settle(self, _: Event) -> None:
        waiting, self._unsettled = self._unsettled, {}
        while waiting:
            part = self._connected(waiting.pop(min(waiting)))
            for serial, rate in fair_rates(part, self.capacities).items():
                flow = part[serial]
                if abs(rate - flow.rate) > _EPSILON * rate:
                    self._set_rate(flow, rate)
                waiting.pop(serial, None)

    def _connected(self, flow: Flow) -> dict[int, Flow]:
        part, frontier = {flow.serial: flow}, [flow]
        seen_links: set[int] = set()
        while frontier:
            for link, _ in frontier.pop().loads:
                if link not in seen_links:
                    seen_links.add(link)
                    new = {s: f for s, f in self._on_link[link].items() if s not in part}
                    part.update(new)
                    frontier.extend(new.values())
        return dict(sorted(part.items()))


def then(event: Event, act: Callable[[Event], None]) -> None:
    """Call `act` when the event fires."""
    assert event.callbacks is not None, "the event has fired already"
    event.callbacks.append(act)


def carried(event: Event) -> Any:
    """The value that a fired event brings."""
    return event.value


def fair_rates(flows: dict[int, Flow], capacities: Sequence[float]) -> dict[int, float]:
    """Weighted max-min fair rates (B/s) of flows by progressive filling.

    Every flow's rate is limited by at least one full link on which no other flow is faster.
    """
    left: dict[int, float] = {}
    demand: dict[int, dict[int, float]] = {}
    for serial, flow in flows.items():
        for link, load in flow.loads:
            left[link] = capacities[link]
            demand.setdefault(link, {})[serial] = load
    rates: dict[int, float] = {}
    while len(rates) < len(flows):
        level, full = min((left[link] / sum(on.values()), link) for link, on in demand.items())
        for serial in list(demand[full]):
            rates[serial] = level
            for link, load in flows[serial].loads:
                left[link] = max(left[link] - load * level, 0.0)
                del demand[link][serial]
                if not demand[link]:
                    del demand[link]
    return rates
