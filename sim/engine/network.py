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

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from simpy.events import Event

from sim.engine.events import Clock, at_the_end_of_the_instant, carried, then
from sim.engine.filling import Arrived, Flow, Loads, fair_rates

_EPSILON = 1e-12
_FULL = 1e-9


class Network:
    """Links with a capacity in B/s each, and the flows that are on them now."""

    def __init__(self, env: Clock, capacities: Sequence[float]) -> None:
        self.env = env
        self.capacities = capacities
        self._on_link: list[dict[int, Flow]] = [{} for _ in capacities]
        # Of a flow that is alone on its links all is known when its latency begins.
        self._ahead: list[Flow | None] = [None for _ in capacities]
        self._taken = [0.0 for _ in capacities]
        self._affected: dict[int, Flow] = {}  # flows whose rates are to be computed anew
        self._settling = False
        self._started = 0
        self._watching: list[list[Callable[[Any], Any]]] = [[] for _ in capacities]

    def idle(self, links: Iterable[int]) -> bool:
        """Whether nothing is on any of these links, nor anybody watching who has traffic there."""
        return not any(
            self._on_link[link] or self._watching[link] or self._is_on_its_way(self._ahead[link])
            for link in links
        )

    def watch(self, links: Iterable[int], act: Callable[[Any], Any]) -> None:
        """Call `act` as soon as a flow comes upon any of these links."""
        for link in links:
            self._met(link)
            self._watching[link].append(act)

    def unwatch(self, links: Iterable[int], act: Callable[[Any], Any]) -> None:
        """Stop watching."""
        for link in links:
            self._watching[link].remove(act)

    def start(
        self, size: float, loads: Loads, arrived: Arrived, value: Any = None, latency: float = 0.0
    ) -> None:
        """Put `size` bytes on the links of `loads` when a latency is over, and call
        `arrived(value)` at the end."""
        self._started += 1
        flow = Flow(arrived, value, size, loads, self._started, self.env.now + latency)
        if not latency:
            self._begin(flow)
            return
        for link, _ in loads:
            if self._on_link[link] or self._watching[link] or self._ahead[link] is not None:
                self.env.alarm(flow.since, self._begins, flow)
                return
        for link, _ in loads:
            self._ahead[link] = flow
        self._go(flow, self._alone(loads))

    def _alone(self, loads: Loads) -> float:
        """The rate of a flow that has its links to itself."""
        return min(self.capacities[link] / load for link, load in loads)

    def _begins(self, latency_is_over: Event) -> None:
        self._begin(carried(latency_is_over))

    def _begin(self, flow: Flow) -> None:
        alone, watching = True, []
        for link, _ in flow.loads:
            self._met(link)
            alone = alone and not self._on_link[link]
            self._on_link[link][flow.serial] = flow
            watching += self._watching[link]
        if alone:
            self._set_rate(flow, self._alone(flow.loads))
        else:
            self._settle_later({flow.serial: flow})
        for act in dict.fromkeys(watching):
            act(None)

    def _is_on_its_way(self, flow: Flow | None) -> bool:
        return flow is not None and flow.since < self.env.now

    def _met(self, link: int) -> None:
        """If there is a flow of which all was known ahead, because it was alone on its links, it
        becomes one like any other: from its beginning on, which may be still to come."""
        flow = self._ahead[link]
        if flow is None:
            return
        begun = self._is_on_its_way(flow)
        for other, load in flow.loads:
            self._ahead[other] = None
            if begun:
                self._on_link[other][flow.serial] = flow
                self._taken[other] += load * flow.rate
        if not begun:
            flow.rate = 0.0
            flow.alarm += 1
            self.env.alarm(flow.since, self._begins, flow)

    def _set_rate(self, flow: Flow, rate: float) -> None:
        now = self.env.now
        flow.remaining -= flow.rate * (now - flow.since)
        self._take(flow, rate - flow.rate)
        flow.since = now
        self._go(flow, rate)

    def _go(self, flow: Flow, rate: float) -> None:
        """Go on at a rate until all has arrived, unless something comes in between."""
        flow.rate = rate
        flow.alarm += 1
        arrival = flow.since + max(flow.remaining, 0.0) / rate
        self.env.alarm(arrival, self._arrive, (flow, flow.alarm))

    def _take(self, flow: Flow, more: float) -> None:
        for link, load in flow.loads:
            self._taken[link] += load * more

    def _full(self, link: int, taken: float) -> bool:
        return taken >= self.capacities[link] * (1.0 - _FULL)

    def _arrive(self, wake: Event) -> None:
        flow, alarm = carried(wake)
        if alarm != flow.alarm:
            return  # the rate has changed since this alarm was set
        if self._ahead[flow.loads[0][0]] is flow:
            for link, _ in flow.loads:
                self._ahead[link] = None
            flow.arrived(flow.value)
            return
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
            settling = Event(self.env)
            then(settling, self._settle)
            at_the_end_of_the_instant(settling)
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
