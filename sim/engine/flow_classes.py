"""Fair shares by class: the rates of `sim.engine.network` when thousands of flows are alike.

A thousand workers that push to the same servers are a thousand flows. Only two properties of a flow
matter to the other flows: its loads on the links that it shares, and the rate that its own links
allow. Flows with both properties equal are one class. Classes with equal loads are one group
(`sim.engine.flow_groups`), and groups share links. A link is a flow's own if all flows on it take
exactly the same way, since they then always have equal parts of it. The effort of an event grows
with the groups that it touches, and with the classes whose limits a level crosses.

`tests/engine/test_flow_classes.py` checks that rates equal the rates of `Network` to 1e-9.
"""

from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import count
from operator import attrgetter
from typing import Any

import simpy
from simpy.events import Event

from sim.engine.events import at_the_end_of_the_instant, carried, then
from sim.engine.fair_shares import FairShares, Loads
from sim.engine.flow_groups import ClassedFlow, FlowClass, FlowGroup, Way
from sim.engine.network import Arrived

_EPSILON = 1e-12
_FEW = 16
"""At most so many flows of one way have links of their own, since each further flow changes the
limits of all of them."""

Key = tuple[Loads, float]


class FlowClassNetwork:
    """Links with a capacity in B/s each, and the flows that are on them now."""

    def __init__(self, env: simpy.Environment, capacities: Sequence[float] = ()) -> None:
        self.env = env
        self.shares = FairShares(capacities)
        self._ways: dict[Loads, Way] = {}
        self._ways_on: list[dict[Way, None]] = [{} for _ in capacities]
        self._groups: dict[Loads, FlowGroup] = {}
        self._classes: dict[Key, FlowClass] = {}
        self._moved: dict[int, ClassedFlow] = {}
        self._touched: dict[FlowGroup, None] = {}
        self._changed: dict[FlowClass, None] = {}
        self._settling = False
        self._serials, self._orders = count(1), count()

    def start(self, size: float, loads: Loads, arrived: Arrived, value: Any = None) -> None:
        """Put `size` bytes on the links of `loads` now and call `arrived(value)` at the end."""
        way = self._ways.get(loads)
        if way is None:
            way = self._ways[loads] = Way(loads)
        flow = ClassedFlow(arrived, value, size, way, next(self._serials))
        way.sent += size
        for link, _ in loads if not way.flows else ():
            self._move_only(link)
            self._ways_on[link][way] = None
        self._move_few(way)
        way.flows[flow.serial] = flow
        self._move(flow)

    def change(self, link: int, capacity: float) -> None:
        """Give a link another `capacity` (B/s) from now on."""
        self.shares.change(link, capacity)
        for way in self._ways_on[link]:
            self._move_few(way)
        self._settle_later()

    def carried(self) -> list[float]:
        """The bytes that each link has carried so far."""
        sizes = [0.0] * len(self._ways_on)
        for way in self._ways.values():
            left = sum(flow.left(self.env.now) for flow in way.flows.values())
            for link, load in way.loads:
                sizes[link] += load * (way.sent - left)
        return sizes

    def add_link(self, capacity: float) -> int:
        """Add a link and return its number."""
        self._ways_on.append({})
        return self.shares.add_link(capacity)

    def _move(self, flow: ClassedFlow) -> None:
        """Have a flow classified again, because its links are shared differently from now on."""
        self._moved[flow.serial] = flow
        self._settle_later()

    def _move_few(self, way: Way) -> None:
        """Have the flows of a way classified again, if they may have links of their own."""
        if len(way.flows) <= _FEW:
            for flow in way.flows.values():
                self._move(flow)

    def _move_only(self, link: int) -> None:
        """Have the flows of a link's only way classified again: the link may now be their own."""
        ways = self._ways_on[link]
        if len(ways) == 1:
            self._move_few(next(iter(ways)))

    def _settle_later(self) -> None:
        if not self._settling:
            self._settling = True
            settling = Event(self.env)
            then(settling, self._settle)
            at_the_end_of_the_instant(settling)

    def _settle(self, _: Event) -> None:
        self._settling = False
        moved, self._moved = self._moved, {}
        for flow in moved.values():
            self._classify(flow)
        touched, self._touched = self._touched, {}
        changed, self._changed = self._changed, {}
        for flow_class in [flow_class for flow_class in changed if not flow_class.size]:
            del changed[flow_class], self._classes[flow_class.group.loads, flow_class.limit]
            flow_class.group.close(flow_class)
        for group in [group for group in touched if not group.size]:
            del touched[group], self._groups[group.loads]
            group.alarm += 1
            self.shares.resize(group, 0)
        self._share(touched, changed)

    def _classify(self, flow: ClassedFlow) -> None:
        """Move a flow into the class to which it belongs now."""
        key = loads, limit = self._key(flow.way)
        now = self.env.now
        if (old := flow.flow_class) is not None:
            if old.limit == limit and old.group.loads == loads:
                return
            flow.remaining = flow.left(now)
            flow.entry = None
            self._resize(old, -1)
        flow_class = self._classes.get(key)
        if flow_class is None:
            flow_class = self._classes[key] = self._group(loads).open(
                limit, next(self._orders), now
            )
        flow.flow_class = flow_class
        flow.entry = (flow_class.reading(now) + flow.remaining, flow.serial, flow)
        heappush(flow_class.members, flow.entry)
        self._resize(flow_class, 1)

    def _resize(self, flow_class: FlowClass, more: int) -> None:
        flow_class.group.resize(flow_class, more, self.env.now)
        self._changed[flow_class] = None
        self._touched[flow_class.group] = None

    def _key(self, way: Way) -> Key:
        shared, limit, flows = [], float("inf"), len(way.flows)
        for item in way.loads:
            link, load = item
            if flows > _FEW or len(self._ways_on[link]) > 1:
                shared.append(item)
            else:
                limit = min(limit, self.shares.capacity[link] / (load * flows))
        return tuple(shared), limit

    def _group(self, loads: Loads) -> FlowGroup:
        group = self._groups.get(loads)
        if group is None:
            group = self._groups[loads] = FlowGroup(loads, next(self._orders), self.env.now)
        return group

    def _share(self, touched: dict[FlowGroup, None], changed: dict[FlowClass, None]) -> None:
        """Set fair rates for the touched groups, and for all groups whose rates then change."""
        now = self.env.now
        for group in touched:
            self.shares.resize(group, group.size)
        for share in self.shares.settle():
            assert isinstance(share, FlowGroup)
            if abs(share.fair - share.level) > _EPSILON * share.fair:
                touched[share] = None
        settled = sorted(touched, key=attrgetter("order"))
        for group in settled:
            changed.update(dict.fromkeys(group.settle(now)))
        for flow_class in sorted(changed, key=attrgetter("order")):
            if flow_class.capped:
                self._await_class(flow_class)
            else:
                flow_class.group.expect(flow_class)
        for group in settled:
            self._await_group(group)

    def _await_class(self, flow_class: FlowClass) -> None:
        """Set an alarm for the next end of a flow in a class that its own links limit."""
        flow_class.alarm += 1
        first = flow_class.first()
        if first is not None:
            left = max(first - flow_class.reading(self.env.now), 0.0)
            alarm = self.env.timeout(left / flow_class.limit, (flow_class, flow_class.alarm))
            then(alarm, self._class_arrives)

    def _await_group(self, group: FlowGroup) -> None:
        """Set an alarm for the next end of a flow in a group that shared links hold back."""
        group.alarm += 1
        first = group.next()
        if first is not None:
            left = max(first - group.reading(self.env.now), 0.0)
            alarm = self.env.timeout(left / group.level, (group, group.alarm))
            then(alarm, self._group_arrives)

    def _class_arrives(self, wake: Event) -> None:
        flow_class, alarm = carried(wake)
        if alarm == flow_class.alarm:  # otherwise the alarm is obsolete
            flow_class.clock, flow_class.since = flow_class.members[0][0], self.env.now
            self._end(_pop(flow_class))

    def _group_arrives(self, wake: Event) -> None:
        group, alarm = carried(wake)
        if alarm != group.alarm:
            return
        group.clock, group.since = group.queue[0][0], self.env.now
        ended = []
        while (first := group.next()) is not None and first <= group.clock * (1.0 + _EPSILON):
            _, _, _, flow_class = heappop(group.queue)
            ended += _pop(flow_class)
        self._end(ended)

    def _end(self, ended: list[ClassedFlow]) -> None:
        for flow in ended:
            flow_class = flow.flow_class
            assert flow_class is not None
            flow.flow_class = flow.entry = None
            self._resize(flow_class, -1)
            self._moved.pop(flow.serial, None)
            del flow.way.flows[flow.serial]
            self._move_few(flow.way)
            for link, _ in flow.way.loads if not flow.way.flows else ():
                del self._ways_on[link][flow.way]
                self._move_only(link)
        self._settle_later()
        for flow in ended:
            flow.arrived(flow.value)


def _pop(flow_class: FlowClass) -> list[ClassedFlow]:
    """Remove and return the flows of a class that end together with its first flow."""
    ended, members = [], flow_class.members
    last = members[0][0] * (1.0 + _EPSILON)
    while members and members[0][0] <= last:
        entry = heappop(members)
        if entry[2].entry is entry:
            ended.append(entry[2])
    return ended
