"""Flows that share links by weighted max-min fairness: the one mechanism behind all traffic.

A flow f moves `size` bytes and puts load_fl bytes on link l for each byte of progress. Its rate x_f
is weighted max-min fair under  sum_f load_fl x_f <= capacity_l  (Bertsekas and Gallager, Data
Networks, section 6.5.2): grow all rates together, freeze the flows of a link when the link is full,
go on with the rest. A ring all-reduce is one flow, a pipeline send is another, so contention
between them follows from the flows; no input states it.

When a flow starts or ends, only the rates of affected flows are computed again (`FairShares`). All
changes of one instant take effect together. Flows are treated in the order in which they started.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from simpy.core import SimTime
from simpy.events import Event

from sim.engine.events import Clock, at_the_end_of_the_instant, carried, then
from sim.engine.fair_shares import FairShares, Loads, Share

_EPSILON = 1e-12  # share of a rate: smaller changes are ignored

Arrived = Callable[[Any], None]


class Flow(Share):
    """Bytes on their way; `arrived(value)` is called when the last byte arrives."""

    __slots__ = ("alarm", "arrived", "rate", "remaining", "since", "value")

    def __init__(
        self, arrived: Arrived, value: Any, size: float, loads: Loads, order: int, since: SimTime
    ) -> None:
        super().__init__(loads, order)
        self.arrived, self.value, self.remaining = arrived, value, size
        self.rate, self.since, self.alarm = 0.0, since, 0


class Network:
    """Links, each with a capacity (B/s), and the flows that are on them now."""

    def __init__(self, env: Clock, capacities: Sequence[float]) -> None:
        self.env = env
        self.shares = FairShares(capacities)
        # The flow that has a link to itself; its end is known when its latency begins.
        self._ahead: list[Flow | None] = [None for _ in capacities]
        self._settling = False
        self._started = 0
        self._watching: list[list[Callable[[Any], Any]]] = [[] for _ in capacities]

    def idle(self, links: Iterable[int]) -> bool:
        """Whether no flow is on these links and no computation watches them."""
        on, watching, ahead = self.shares.on, self._watching, self._ahead
        for link in links:
            if on[link] or watching[link] or self._is_on_its_way(ahead[link]):
                return False
        return True

    def watch(self, links: Iterable[int], act: Callable[[Any], Any]) -> None:
        """Call `act` as soon as a flow begins on any of these links."""
        for link in links:
            self._met(link)
            self._watching[link].append(act)

    def unwatch(self, links: Iterable[int], act: Callable[[Any], Any]) -> None:
        """Stop watching these links."""
        for link in links:
            self._watching[link].remove(act)

    def start(
        self, size: float, loads: Loads, arrived: Arrived, value: Any = None, latency: float = 0.0
    ) -> None:
        """Put `size` bytes on the links of `loads` after `latency` seconds, and call
        `arrived(value)` when they have arrived."""
        self._started += 1
        flow = Flow(arrived, value, size, loads, self._started, self.env.now + latency)
        if not latency:
            self._begin(flow)
            return
        for link, _ in loads:
            if self.shares.on[link] or self._watching[link] or self._ahead[link] is not None:
                self.env.alarm(flow.since, self._begins, flow)
                return
        for link, _ in loads:
            self._ahead[link] = flow
        self._go(flow, self.shares.alone(loads))

    def _begins(self, latency_is_over: Event) -> None:
        self._begin(carried(latency_is_over))

    def _begin(self, flow: Flow) -> None:
        watching = []
        for link, _ in flow.loads:
            self._met(link)
            watching += self._watching[link]
        if self.shares.resize(flow, 1):
            self._settle_later()
        else:
            self._set_rate(flow, flow.fair)
        for act in dict.fromkeys(watching):
            act(None)

    def _is_on_its_way(self, flow: Flow | None) -> bool:
        return flow is not None and flow.since < self.env.now

    def _met(self, link: int) -> None:
        """Make the flow that was alone on a link, if there is one, an ordinary flow. If its latency
        is not over, it begins later, like any other flow."""
        flow = self._ahead[link]
        if flow is None:
            return
        for other, _ in flow.loads:
            self._ahead[other] = None
        if self._is_on_its_way(flow):
            self.shares.resize(flow, 1)
        else:
            flow.rate = 0.0
            flow.alarm += 1
            self.env.alarm(flow.since, self._begins, flow)

    def _set_rate(self, flow: Flow, rate: float) -> None:
        now = self.env.now
        flow.remaining -= flow.rate * (now - flow.since)
        flow.since = now
        self._go(flow, rate)

    def _go(self, flow: Flow, rate: float) -> None:
        """Let a flow go on at a rate, and set the alarm for its end at this rate."""
        flow.rate = rate
        flow.alarm += 1
        arrival = flow.since + max(flow.remaining, 0.0) / rate
        self.env.alarm(arrival, self._arrive, (flow, flow.alarm))

    def _arrive(self, wake: Event) -> None:
        flow, alarm = carried(wake)
        if alarm != flow.alarm:
            return  # the rate has changed since this alarm was set
        if self._ahead[flow.loads[0][0]] is flow:
            for link, _ in flow.loads:
                self._ahead[link] = None
            flow.arrived(flow.value)
            return
        if self.shares.resize(flow, 0):
            self._settle_later()
        flow.arrived(flow.value)

    def _settle_later(self) -> None:
        if not self._settling:
            self._settling = True
            settling = Event(self.env)
            then(settling, self._settle)
            at_the_end_of_the_instant(settling)

    def _settle(self, _: Event) -> None:
        self._settling = False
        for flow in self.shares.settle():
            assert isinstance(flow, Flow)
            if abs(flow.fair - flow.rate) > _EPSILON * flow.fair:
                self._set_rate(flow, flow.fair)
