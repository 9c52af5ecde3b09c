"""Fair shares among crowds: the rates of `sim.engine.network` when thousands of flows are alike.

A thousand workers that push to the same servers are a thousand flows, but only two things about
each matter to the others: how it loads the links that it shares, and how fast its own links let
it be. Flows equal in both are one class and have one rate for as long as they stay equal, so a
class keeps one clock of bytes (virtual time, as in Demers, Keshav and Shenker 1989): a flow that
joins at V with S bytes leaves at V + S, whatever the rate does between. An event then costs the
number of classes that it touches, not the number of flows.

`tests/engine/test_crowd.py` holds it to `Network`, the reference, to 1e-9.
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


class _Flow:
    """Bytes on their way; `finish` is the reading of its class's clock at its end."""

    __slots__ = ("alone", "arrived", "finish", "kind", "loads", "remaining", "serial", "value")

    def __init__(
        self, arrived: Arrived, value: Any, size: float, loads: Loads, serial: int
    ) -> None:
        self.arrived, self.value, self.loads, self.serial = arrived, value, loads, serial
        self.remaining, self.finish = size, 0.0
        self.kind: _Kind | None = None


class _Kind:
    """Flows that load shared links alike and that their own links limit alike to `limit` B/s."""

    __slots__ = ("alarm", "clock", "key", "limit", "loads", "members", "order", "rate", "since")

    def __init__(self, key: Key, order: int, now: float) -> None:
        self.key, self.order, self.since = key, order, now
        self.loads, self.limit = key
        self.clock, self.rate, self.alarm = 0.0, 0.0, 0
        self.members: list[tuple[float, int, _Flow]] = []


class Crowd:
    """Links with a capacity in B/s each, and the flows that are on them now."""

    def __init__(self, env: simpy.Environment, capacities: Sequence[float] = ()) -> None:
        self.env = env
        self.capacities = list(capacities)
        self.carried = [0.0] * len(self.capacities)
        self._on_link: list[dict[int, _Flow]] = [{} for _ in self.capacities]
        self._kinds: dict[Key, _Kind] = {}
        self._sizes: dict[_Kind, int] = {}
        self._of_link: list[dict[_Kind, float]] = [{} for _ in self.capacities]
        self._moved: dict[int, _Flow] = {}
        self._touched: dict[_Kind, None] = {}
        self._settling = False
        self._serials, self._orders = count(1), count()

    def start(self, size: float, loads: Loads, arrived: Arrived, value: Any = None) -> None:
        """Put `size` bytes on the links of `loads` now and call `arrived(value)` at the end."""
        flow = _Flow(arrived, value, size, loads, next(self._serials))
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
            if flow.kind is not None:
                self._touched[flow.kind] = None

    def add_link(self, capacity: float) -> int:
        """One more link; returns its number."""
        self.capacities.append(capacity)
        self.carried.append(0.0)
        self._on_link.append({})
        self._of_link.append({})
        return len(self.capacities) - 1

    def _move(self, flow: _Flow) -> None:
        """The flow's links are shared otherwise from now on: look at its class again."""
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
        for kind in [kind for kind in touched if not self._sizes[kind]]:
            self._close(kind, touched)
        self._share(touched)

    def _classify(self, flow: _Flow) -> None:
        """Put a flow into the class that it belongs to now, if that is another."""
        key = self._key(flow.loads)
        if flow.kind is not None:
            if flow.kind.key == key:
                return
            self._leave(flow)
        kind = self._kinds.get(key) or self._open(key)
        self._advance(kind)
        flow.kind, flow.finish = kind, kind.clock + flow.remaining
        heappush(kind.members, (flow.finish, flow.serial, flow))
        self._sizes[kind] += 1
        self._touched[kind] = None

    def _key(self, loads: Loads) -> Key:
        shared, limit = [], float("inf")
        for item in loads:
            link, load = item
            if len(self._on_link[link]) > 1:
                shared.append(item)
            else:
                limit = min(limit, self.capacities[link] / load)
        return tuple(shared), limit

    def _open(self, key: Key) -> _Kind:
        kind = self._kinds[key] = _Kind(key, next(self._orders), self.env.now)
        self._sizes[kind] = 0
        for link, load in kind.loads:
            self._of_link[link][kind] = load
        return kind

    def _close(self, kind: _Kind, touched: dict[_Kind, None]) -> None:
        """Forget a class without flows; those beside it get what it had."""
        touched.pop(kind, None)
        kind.alarm += 1
        del self._kinds[kind.key], self._sizes[kind]
        for link, _ in kind.loads:
            del self._of_link[link][kind]
        for link, _ in kind.loads:
            if self._of_link[link]:
                touched.setdefault(next(iter(self._of_link[link])))

    def _leave(self, flow: _Flow) -> None:
        kind = flow.kind
        assert kind is not None
        self._advance(kind)
        flow.remaining = max(flow.finish - kind.clock, 0.0)
        flow.kind = None  # its entry in the heap is stale now
        self._sizes[kind] -= 1
        self._touched[kind] = None

    def _advance(self, kind: _Kind) -> None:
        now = self.env.now
        kind.clock += kind.rate * (now - kind.since)
        kind.since = now

    def _share(self, touched: dict[_Kind, None]) -> None:
        """New rates for all classes that the touched ones share links with, near and far."""
        part = self._connected(touched)
        rates = _fair(part, self._sizes, self.capacities)
        for kind in sorted(part, key=lambda kind: kind.order):
            rate = rates[kind]
            if kind in touched or abs(rate - kind.rate) > _EPSILON * rate:
                self._advance(kind)
                kind.rate = rate
                self._set_alarm(kind)

    def _connected(self, touched: Iterable[_Kind]) -> dict[_Kind, None]:
        part = dict.fromkeys(touched)
        frontier, seen = list(part), set()
        while frontier:
            for link, _ in frontier.pop().loads:
                if link not in seen:
                    seen.add(link)
                    new = [kind for kind in self._of_link[link] if kind not in part]
                    part.update(dict.fromkeys(new))
                    frontier += new
        return part

    def _set_alarm(self, kind: _Kind) -> None:
        kind.alarm += 1
        members = kind.members
        while members and not _current(members[0], kind):
            heappop(members)
        if members:
            wait = max(members[0][0] - kind.clock, 0.0) / kind.rate
            then(self.env.timeout(wait, (kind, kind.alarm)), self._arrive)

    def _arrive(self, wake: Event) -> None:
        kind, alarm = carried(wake)
        if alarm != kind.alarm:
            return  # the rate has changed since this alarm was set
        finish, _, _ = kind.members[0]
        kind.clock, kind.since = finish, self.env.now
        ended = []
        while kind.members and kind.members[0][0] <= finish * (1.0 + _EPSILON):
            entry = heappop(kind.members)
            if _current(entry, kind):
                ended.append(entry[2])
        for flow in ended:
            self._end(flow, kind)
        for flow in ended:
            flow.arrived(flow.value)

    def _end(self, flow: _Flow, kind: _Kind) -> None:
        flow.kind = None
        self._sizes[kind] -= 1
        self._touched[kind] = None
        self._moved.pop(flow.serial, None)
        for link, _ in flow.loads:
            on_link = self._on_link[link]
            del on_link[flow.serial]
            if len(on_link) == 1:
                self._move(next(iter(on_link.values())))
        self._settle_later()


def _current(entry: tuple[float, int, _Flow], kind: _Kind) -> bool:
    finish, _, flow = entry
    return flow.kind is kind and flow.finish == finish


def _fair(
    kinds: Iterable[_Kind], sizes: dict[_Kind, int], capacities: Sequence[float]
) -> dict[_Kind, float]:
    """Weighted max-min fair rates (B/s) by progressive filling, lowest level first.

    A class's own links are one more link that only its members use, each up to `limit`. Levels
    only rise while classes freeze, so a heap of old levels finds the lowest.
    """
    filling = _Filling(kinds, sizes, capacities)
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
            for kind in waiting:
                filling.freeze(kind, level)
    return filling.rates


class _Filling:
    """What is left of every link while classes get their rates."""

    def __init__(
        self, kinds: Iterable[_Kind], sizes: dict[_Kind, int], capacities: Sequence[float]
    ) -> None:
        self.sizes = sizes
        self.rates: dict[_Kind, float] = {}
        self._left: dict[int, float] = {}
        self._demand: dict[int, float] = {}
        self._on: dict[int, list[_Kind]] = {}
        self._limited: list[tuple[float, int, _Kind | None]] = []
        for kind in kinds:
            if kind.limit < float("inf"):
                self._limited.append((kind.limit, -1 - kind.order, kind))
            for link, load in kind.loads:
                self._left[link] = capacities[link]
                self._demand[link] = self._demand.get(link, 0.0) + load * sizes[kind]
                self._on.setdefault(link, []).append(kind)

    def levels(self) -> list[tuple[float, int, _Kind | None]]:
        found = [*self._limited, *((self.level(link), link, None) for link in self._left)]
        heapify(found)
        return found

    def level(self, link: int) -> float:
        """The rate of each byte of progress if the link were the limit of all that wait on it."""
        return self._left[link] / self._demand[link]

    def waiting(self, link: int) -> list[_Kind]:
        return [kind for kind in self._on[link] if kind not in self.rates]

    def freeze(self, kind: _Kind, rate: float) -> None:
        if kind in self.rates:
            return
        self.rates[kind] = rate
        for link, load in kind.loads:
            taken = load * self.sizes[kind]
            self._left[link] = max(self._left[link] - taken * rate, 0.0)
            self._demand[link] -= taken
