"""Flows that load shared links alike, in classes by the rates that their own links allow.

At any moment all flows of a group have the same rate, the group's level, except flows whose own
links allow less. Such flows run at their own limits. The others share a clock of bytes (virtual
time, as in Demers, Keshav and Shenker 1989): a flow of S bytes that joins at the reading V leaves
at V + S, whatever the levels in between. A new level only affects classes whose limits it crosses.
"""

from bisect import bisect_left, insort
from heapq import heappop, heappush
from sys import float_info
from typing import Any

from sim.engine.fair_shares import Loads, Share
from sim.engine.network import Arrived

UNBOUNDED = float_info.max
"""The level of flows that no shared link holds back."""

Entry = tuple[float, int, "ClassedFlow"]


class Way:
    """Flows with exactly the same loads on links; `sent` counts the bytes of all flows so far."""

    __slots__ = ("flows", "loads", "sent")

    def __init__(self, loads: Loads) -> None:
        self.loads = loads
        self.flows: dict[int, ClassedFlow] = {}
        self.sent = 0.0


class ClassedFlow:
    """A flow in a class. The class queues its `entry`: the reading of the class's clock at
    which the last byte arrives, the flow's number, and the flow."""

    __slots__ = ("arrived", "entry", "flow_class", "remaining", "serial", "value", "way")

    def __init__(self, arrived: Arrived, value: Any, size: float, way: Way, serial: int) -> None:
        self.arrived, self.value, self.way, self.serial = arrived, value, way, serial
        self.remaining = size
        self.flow_class: FlowClass | None = None
        self.entry: Entry | None = None

    def left(self, now: float) -> float:
        """The bytes that have not arrived yet."""
        if self.flow_class is None or self.entry is None:
            return self.remaining
        return max(self.entry[0] - self.flow_class.reading(now), 0.0)


class FlowClass:
    """Flows of a group that their own links limit to the same `limit` (B/s).

    The clock of a class counts the bytes of each flow. If the limit holds (`capped`), the clock
    stood at `clock` at the time `since` and runs at the limit; otherwise it is `clock` bytes behind
    the clock of the group.
    """

    __slots__ = ("alarm", "capped", "clock", "group", "limit", "members", "order", "since", "size")

    def __init__(self, group: "FlowGroup", limit: float, order: int, now: float) -> None:
        self.group, self.limit, self.order = group, limit, order
        self.capped = limit <= group.level
        self.clock = 0.0 if self.capped else group.reading(now)
        self.since, self.alarm, self.size = now, 0, 0
        self.members: list[Entry] = []

    def reading(self, now: float) -> float:
        """The bytes that a flow would have received if it had been in the class from the start."""
        if self.capped:
            return self.clock + self.limit * (now - self.since)
        return self.group.reading(now) - self.clock

    def first(self) -> float | None:
        """The reading of the clock at which the class's next flow ends, or None."""
        members = self.members
        while members and members[0][2].entry is not members[0]:  # the flow has left
            heappop(members)
        return members[0][0] if members else None

    def switch(self, now: float) -> None:
        """Switch between the class's own limit and the level of its group."""
        reading = self.reading(now)
        self.capped = not self.capped
        self.clock = reading if self.capped else self.group.reading(now) - reading
        self.since = now
        self.alarm += 1


class FlowGroup(Share):
    """Classes of flows that load shared links alike, in the order of their limits.

    At `level`, the first `cut` classes together need `fixed` B/s at their limits; the other classes
    have `free` flows.
    """

    __slots__ = (
        "alarm",
        "classes",
        "clock",
        "cut",
        "fixed",
        "free",
        "level",
        "queue",
        "since",
    )

    def __init__(self, loads: Loads, order: int, now: float) -> None:
        super().__init__(loads, order, UNBOUNDED)
        self.since = now
        self.classes: list[tuple[float, int, FlowClass]] = []
        self.cut = self.free = self.alarm = 0
        self.fixed = self.clock = self.level = 0.0
        self.queue: list[tuple[float, int, int, FlowClass]] = []

    def reading(self, now: float) -> float:
        """The bytes of a flow that only shared links would have held back from the start."""
        if self.level >= UNBOUNDED:
            return self.clock  # shared links hold no flow back
        return self.clock + self.level * (now - self.since)

    def open(self, limit: float, order: int, now: float) -> FlowClass:
        """Add a class to the group."""
        opened = FlowClass(self, limit, order, now)
        insort(self.classes, (limit, order, opened))
        self.cut += opened.capped
        return opened

    def close(self, closed: FlowClass) -> None:
        """Forget a class without flows."""
        closed.alarm += 1
        del self.classes[bisect_left(self.classes, (closed.limit, closed.order))]
        self.cut -= closed.capped
        if not self.cut:
            self.fixed = 0.0  # and no rounding is left behind

    def resize(self, flow_class: FlowClass, more: int, now: float) -> None:
        """Add `more` flows to a class, or remove flows if `more` is negative."""
        if flow_class.capped:
            self.fixed += more * flow_class.limit
        else:
            self.clock, self.since = self.reading(now), now
            self.free += more
        flow_class.size += more
        self.size += more

    def demand(self, level: float) -> tuple[float, float]:
        cut, fixed, free, classes = self.cut, self.fixed, self.free, self.classes
        while cut < len(classes) and classes[cut][0] < level:
            limit, _, passed = classes[cut]
            cut, fixed, free = cut + 1, fixed + passed.size * limit, free - passed.size
        while cut and classes[cut - 1][0] >= level:
            limit, _, passed = classes[cut - 1]
            cut, fixed, free = cut - 1, fixed - passed.size * limit, free + passed.size
        return (fixed if cut else 0.0), free

    def settle(self, now: float) -> list[FlowClass]:
        """Take the fair rate as the level from now on. Returns the classes whose limits begin or
        cease to hold."""
        level, classes, before = self.fair, self.classes, self.cut
        while self.cut < len(classes) and classes[self.cut][0] <= level:
            self._pass(classes[self.cut][2], 1)
        while self.cut and classes[self.cut - 1][0] > level:
            self._pass(classes[self.cut - 1][2], -1)
        if not self.cut:
            self.fixed = 0.0  # and no rounding is left behind
        self.clock, self.since = self.reading(now), now
        self.level = level
        switched = classes[min(self.cut, before) : max(self.cut, before)]
        for _, _, flow_class in switched:
            flow_class.switch(now)
        return [flow_class for _, _, flow_class in switched]

    def _pass(self, flow_class: FlowClass, way: int) -> None:
        more = way * flow_class.size
        self.cut += way
        self.fixed += more * flow_class.limit
        self.free -= more

    def expect(self, flow_class: FlowClass) -> None:
        """Put the next end of a class that its group holds back into the queue."""
        flow_class.alarm += 1
        first = flow_class.first()
        if first is not None:
            entry = (first + flow_class.clock, flow_class.order, flow_class.alarm, flow_class)
            heappush(self.queue, entry)

    def next(self) -> float | None:
        """The reading of the clock at which the group's next flow ends, or None."""
        queue = self.queue
        while queue and queue[0][2] != queue[0][3].alarm:
            heappop(queue)
        return queue[0][0] if queue else None
