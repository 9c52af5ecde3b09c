"""Fair shares by class of flows: the rates of `sim.engine.network` when thousands are alike.

A thousand workers that push to the same servers are a thousand flows, but only two things about
each matter to the others: how it loads the links that it shares, and the rate that its own links
allow. Flows equal in both are one class and have one rate for as long as they stay equal, so a
class keeps one clock of bytes (virtual time, as in Demers, Keshav and Shenker 1989): a flow that
joins at V with S bytes leaves at V + S, however the rate changes in between. An event then costs
the number of classes that it touches, not the number of flows.

`tests/engine/test_flow_classes.py` holds it to `Network`, the reference, to 1e-9.
"""

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any

import simpy
from simpy.events import Event, EventPriority

from sim.engine.network import Arrived, Loads, carried, then

_AFTER_ALL_OF_THIS_INSTANT = EventPriority(2)  # simpy's own events have priority 0 or 1
_EPSILON = 1e-12

Key = tuple[Loads, float]


Entry = tuple[float, int, "_ClassedFlow"]


class _ClassedFlow:
    """Bytes on their way; `entry` is its place in the queue of its class, which begins with the
    reading of the class's clock when the last byte arrives."""

    __slots__ = ("arrived", "entry", "flow_class", "loads", "remaining", "serial", "value")

    def __init__(
        self, arrived: Arrived, value: Any, size: float, loads: Loads, serial: int
    ) -> None:
        self.arrived, self.value, self.loads, self.serial = arrived, value, loads, serial
        self.remaining = size
        self.flow_class: _FlowClass | None = None
        self.entry: Entry | None = None


class _FlowClass:
    """Flows that load shared links alike and that their own links limit alike to `limit` B/s."""

    __slots__ = ("alarm", "clock", "key", "limit", "loads", "members", "order", "rate", "since")

    def __init__(self, key: Key, order: int, now: float) -> None:
        self.key, self.order, self.since = key, order, now
        self.loads, self.limit = key
        self.clock, self.rate, self.alarm = 0.0, 0.0, 0
        self.members: list[Entry] = []


class FlowClassNetwork:
    """Links with a capacity in B/s each, and the flows that are on them now."""

    def __init__(self, env: simpy.Environment, capacities: Sequence[float] = ()) -> None:
        self.env = env
        self.capacities = list(capacities)
        self.carried = [0.0] * len(self.capacities)
        self._on_link: list[dict[int, _ClassedFlow]] = [{} for _ in self.capacities]
        self._classes: dict[Key, _FlowClass] = {}
        self._sizes: dict[_FlowClass, int] = {}
        self._classes_on: list[dict[_FlowClass, float]] = [{} for _ in self.capacities]
        self._moved: dict[int, _ClassedFlow] = {}
        self._touched: dict[_FlowClass, None] = {}
        self._settling = False
        self._serials, self._orders = count(1), count()

    def start(self, size: float, loads: Loads, arrived: Arrived, value: Any = None) -> None:
        """Put `size` bytes on the links of `loads` now and call `arrived(value)` at the end."""
        flow = _ClassedFlow(arrived, value, size, loads, next(self._serials))
        for link, load in loads:
            self.carried[link] += load * size
            on_link = self._on_link[link]
            if len(on_link) == 1:
                self._move(next(iter(on_link.values())))
            on_link[flow.serial] = flow
        self._move(flow)

    def change(self, link: int, capacity: float) -> None:
        """From now on the link carries `capacity` B/s."""
        self.capacities[link] = capacity
        for flow in self._on_link[link].values():
            self._move(flow)
            if flow.flow_class is not None:
                self._touched[flow.flow_class] = None

    def unsent(self) -> dict[int, float]:
        """Bytes of all flows, by link, that have still to come over it."""
        left: dict[int, float] = {}
        for link, flows in enumerate(self._on_link):
            for flow in flows.values():
                load = sum(load for used, load in flow.loads if used == link)
                left[link] = left.get(link, 0.0) + load * self._remaining(flow)
        return left

    def _remaining(self, flow: _ClassedFlow) -> float:
        flow_class = flow.flow_class
        if flow_class is None or flow.entry is None:
            return flow.remaining
        clock = flow_class.clock + flow_class.rate * (self.env.now - flow_class.since)
        return max(flow.entry[0] - clock, 0.0)

    def add_link(self, capacity: float) -> int:
        """One more link; returns its number."""
        self.capacities.append(capacity)
        self.carried.append(0.0)
        self._on_link.append({})
        self._classes_on.append({})
        return len(self.capacities) - 1

    def _move(self, flow: _ClassedFlow) -> None:
        """The flow's links are shared differently from now on, so its class may be another."""
        self._moved[flow.serial] = flow
        self._settle_later()

    def _settle_later(self) -> None:
        if not self._settling:
            self._settling = True
            end_of_instant = Event(self.env)
            end_of_instant._ok, end_of_instant._value = True, None
            then(end_of_instant, self._settle)
            self.env.schedule(end_of_instant, priority=_AFTER_ALL_OF_THIS_INSTANT)

    def _settle(self, _: Event) -> None:
        self._settling = False
        moved, self._moved = self._moved, {}
        for flow in moved.values():
            self._classify(flow)
        touched, self._touched = self._touched, {}
        for flow_class in [flow_class for flow_class in touched if not self._sizes[flow_class]]:
            self._close(flow_class, touched)
        self._share(touched)

    def _classify(self, flow: _ClassedFlow) -> None:
        """Put a flow into the class that it belongs to now, if that is another."""
        key = self._key(flow.loads)
        if flow.flow_class is not None:
            if flow.flow_class.key == key:
                return
            self._leave(flow)
        flow_class = self._classes.get(key) or self._open(key)
        self._advance(flow_class)
        flow.flow_class = flow_class
        flow.entry = (flow_class.clock + flow.remaining, flow.serial, flow)
        heappush(flow_class.members, flow.entry)
        self._sizes[flow_class] += 1
        self._touched[flow_class] = None

    def _key(self, loads: Loads) -> Key:
        shared, limit = [], float("inf")
        for item in loads:
            link, load = item
            if len(self._on_link[link]) > 1:
                shared.append(item)
            else:
                limit = min(limit, self.capacities[link] / load)
        return tuple(shared), limit

    def _open(self, key: Key) -> _FlowClass:
        flow_class = self._classes[key] = _FlowClass(key, next(self._orders), self.env.now)
        self._sizes[flow_class] = 0
        for link, load in flow_class.loads:
            self._classes_on[link][flow_class] = load
        return flow_class

    def _close(self, flow_class: _FlowClass, touched: dict[_FlowClass, None]) -> None:
        """Forget a class without flows; the classes on its links get what it had."""
        touched.pop(flow_class, None)
        flow_class.alarm += 1
        del self._classes[flow_class.key], self._sizes[flow_class]
        for link, _ in flow_class.loads:
            del self._classes_on[link][flow_class]
        for link, _ in flow_class.loads:
            if self._classes_on[link]:
                touched.setdefault(next(iter(self._classes_on[link])))

    def _leave(self, flow: _ClassedFlow) -> None:
        flow_class = flow.flow_class
        assert flow_class is not None
        self._advance(flow_class)
        flow.remaining = self._remaining(flow)
        flow.flow_class = flow.entry = None
        self._sizes[flow_class] -= 1
        self._touched[flow_class] = None

    def _advance(self, flow_class: _FlowClass) -> None:
        now = self.env.now
        flow_class.clock += flow_class.rate * (now - flow_class.since)
        flow_class.since = now

    def _share(self, touched: dict[_FlowClass, None]) -> None:
        """New rates for all classes that the touched ones share links with, near and far."""
        part = self._connected(touched)
        rates = _fair(part, self._sizes, self.capacities)
        for flow_class in sorted(part, key=lambda flow_class: flow_class.order):
            rate = rates[flow_class]
            if flow_class in touched or abs(rate - flow_class.rate) > _EPSILON * rate:
                self._advance(flow_class)
                flow_class.rate = rate
                self._set_alarm(flow_class)

    def _connected(self, touched: Iterable[_FlowClass]) -> dict[_FlowClass, None]:
        part = dict.fromkeys(touched)
        frontier, visited = list(part), set()
        while frontier:
            for link, _ in frontier.pop().loads:
                if link not in visited:
                    visited.add(link)
                    new = [
                        flow_class
                        for flow_class in self._classes_on[link]
                        if flow_class not in part
                    ]
                    part.update(dict.fromkeys(new))
                    frontier += new
        return part

    def _set_alarm(self, flow_class: _FlowClass) -> None:
        flow_class.alarm += 1
        members = flow_class.members
        while members and not _current(members[0]):
            heappop(members)
        if members:
            wait = max(members[0][0] - flow_class.clock, 0.0) / flow_class.rate
            then(self.env.timeout(wait, (flow_class, flow_class.alarm)), self._arrive)

    def _arrive(self, wake: Event) -> None:
        flow_class, alarm = carried(wake)
        if alarm != flow_class.alarm:
            return  # the rate has changed since this alarm was set
        finish, _, _ = flow_class.members[0]
        flow_class.clock, flow_class.since = finish, self.env.now
        ended = []
        while flow_class.members and flow_class.members[0][0] <= finish * (1.0 + _EPSILON):
            entry = heappop(flow_class.members)
            if _current(entry):
                ended.append(entry[2])
        for flow in ended:
            self._end(flow, flow_class)
        for flow in ended:
            flow.arrived(flow.value)

    def _end(self, flow: _ClassedFlow, flow_class: _FlowClass) -> None:
        flow.flow_class = flow.entry = None
        self._sizes[flow_class] -= 1
        self._touched[flow_class] = None
        self._moved.pop(flow.serial, None)
        for link, _ in flow.loads:
            on_link = self._on_link[link]
            del on_link[flow.serial]
            if len(on_link) == 1:
                self._move(next(iter(on_link.values())))
        self._settle_later()


def _current(entry: Entry) -> bool:
    """Whether the flow has not left since, not even to come back in the same instant."""
    return entry[2].entry is entry


def _fair(
    classes: Iterable[_FlowClass], sizes: dict[_FlowClass, int], capacities: Sequence[float]
) -> dict[_FlowClass, float]:
    """Weighted max-min fair rates (B/s) by progressive filling, lowest level first.

    A class's own links are one more link that only its members use, each up to `limit`. Levels
    only rise while classes freeze, so a heap of old levels finds the lowest.
    """
    filling = _Filling(classes, sizes, capacities)
    levels = filling.levels()
    while levels:
        level, link, alone = heappop(levels)
        if alone is not None:
            filling.freeze(alone, level)
        elif waiting := filling.waiting(link):
            now = filling.level(link)
            if now > level * (1.0 + _EPSILON):
                heappush(levels, (now, link, None))
                continue
            for flow_class in waiting:
                filling.freeze(flow_class, level)
    return filling.rates


class _Filling:
    """What is left of every link while classes get their rates."""

    def __init__(
        self,
        classes: Iterable[_FlowClass],
        sizes: dict[_FlowClass, int],
        capacities: Sequence[float],
    ) -> None:
        self.sizes = sizes
        self.rates: dict[_FlowClass, float] = {}
        self._left: dict[int, float] = {}
        self._demand: dict[int, float] = {}
        self._on: dict[int, list[_FlowClass]] = {}
        self._limited: list[tuple[float, int, _FlowClass | None]] = []
        for flow_class in classes:
            if flow_class.limit < float("inf"):
                self._limited.append((flow_class.limit, -1 - flow_class.order, flow_class))
            for link, load in flow_class.loads:
                self._left[link] = capacities[link]
                self._demand[link] = self._demand.get(link, 0.0) + load * sizes[flow_class]
                self._on.setdefault(link, []).append(flow_class)

    def levels(self) -> list[tuple[float, int, _FlowClass | None]]:
        levels = [*self._limited, *((self.level(link), link, None) for link in self._left)]
        heapify(levels)
        return levels

    def level(self, link: int) -> float:
        """The rate of each byte of progress if the link were the limit of all that wait on it."""
        return self._left[link] / self._demand[link]

    def waiting(self, link: int) -> list[_FlowClass]:
        return [flow_class for flow_class in self._on[link] if flow_class not in self.rates]

    def freeze(self, flow_class: _FlowClass, rate: float) -> None:
        if flow_class in self.rates:
            return
        self.rates[flow_class] = rate
        for link, load in flow_class.loads:
            taken = load * self.sizes[flow_class]
            self._left[link] = max(self._left[link] - taken * rate, 0.0)
            self._demand[link] -= taken
