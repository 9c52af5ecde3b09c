"""How much of the device's memory does a recorded script hold, from moment to moment?"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from math import inf

from sim.config.dataclass import dataclass
from sim.jobs.recorded.allocator import CachingAllocator, OutOfMemoryError
from sim.jobs.recorded.allocator_settings import AllocatorSettings, parsed
from sim.jobs.recorded.recording import PARTS, Allocation, Recording
from sim.program.memory import MemoryUse, added, in_a_row


class EventTimes:
    """The times of each event of a played step (s). `issued` is when the host reaches the event;
    `done` is when the device has finished all work of the event's stream so far. The host takes
    `hosts` seconds for each event, and `opening` seconds before the first."""

    def __init__(
        self, recording: Recording, done: Sequence[float], hosts: Sequence[float], opening: float
    ) -> None:
        self.done = done
        self.issued = _issued(recording, done, hosts, opening)
        self.of: defaultdict[int, list[int]] = defaultdict(list)  # by stream: its events
        for number, event in enumerate(recording.events):
            self.of[event.stream].append(number)

    def over(self, stream: int, event: int) -> float:
        """When the device has done all work that a stream was given before an event (s)."""
        place = bisect_left(self.of[stream], event)
        return self.done[self.of[stream][place - 1]] if place else 0.0


def _issued(
    recording: Recording, done: Sequence[float], hosts: Sequence[float], opening: float
) -> list[float]:
    """The time at which the host reaches each event, and its time at the end (s). The host waits at
    synchronisations."""
    times, marks = [opening], dict[int, float]()
    for event, end, seconds in zip(recording.events, done, hosts, strict=True):
        now = times[-1] + seconds
        if event.kind == "record":
            marks[event.mark] = end
        elif event.kind == "sync":
            now = max(now, marks.get(event.mark, 0.0) if event.mark else end)
        times.append(now)
    return times


class BlocksInUse:
    """Blocks that several streams use. Without `moments`, no freed block counts as in use.

    A block may be used by other streams than its own (`Tensor.record_stream`). When it is freed, an
    event is recorded on each of these streams. At each request for memory, the blocks whose events
    have all happened become free (c10/cuda/CUDACachingAllocator.cpp: `insert_events`,
    `process_events`).
    """

    def __init__(self, moments: EventTimes | None) -> None:
        self.moments = moments
        self._users: dict[int, set[int]] = {}
        self._until: dict[int, float] = {}  # by freed block: when its streams have finished (s)

    def use(self, block: int, stream: int) -> None:
        """Note that this stream uses a block, too."""
        self._users.setdefault(block, set()).add(stream)

    def give(self, block: int, event: int) -> bool:
        """Whether a block that is freed before this event is still in use at that time."""
        users = self._users.pop(block, ())
        if not users or self.moments is None or event < 0:
            return False
        until = max(self.moments.over(stream, event) for stream in users)
        if until <= self.moments.issued[event]:
            return False
        self._until[block] = until
        return True

    def over(self, event: int) -> Iterator[int]:
        """Yield the freed blocks that are no longer in use at this event."""
        for block, until in list(self._until.items()):
            if self.moments is None or until <= self.moments.issued[event]:
                del self._until[block]
                yield block


NOWHERE = "no line of the script"
BESIDE = "cached, not allocated"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfMemory:
    """A request that the device could not serve. `row` is its place in the recording's memory. The
    other fields are the request's `bytes`, its line of the script, and the bytes that were
    allocated and reserved at that moment."""

    row: int
    bytes: int
    line: str
    allocated: float
    reserved: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The most bytes `allocated` to tensors at once, and the most `reserved` from the device.

    `parts` and `lines` divide the allocated bytes at their peak, which was reached at the `line` of
    the script before the `event`. `retries` counts how often the allocator returned all cached
    blocks. `failure` is the first request that failed even then; later requests are played as on a
    larger device.
    """

    allocated: float
    reserved: float
    parts: Mapping[str, float]
    lines: Mapping[str, float] = field(default_factory=dict)
    event: int = -1
    line: str = NOWHERE
    retries: int = 0
    failure: OutOfMemory | None = None


@dataclass(frozen=True, slots=True)
class _Change:
    """The change that a row of a recording's memory makes: the allocated bytes of its block
    (negative if the row frees the block), and the reserved bytes."""

    event: int
    block: Allocation | None
    allocated: int
    reserved: int


class Memory:
    """A recording's memory, played on a device of `capacity` bytes; `settings` replace the
    recording's own settings of the allocator.

    Without `moments`, a freed block that several streams use becomes free at once. With the
    `moments` of a played step, it becomes free only after the device has finished with it. Raises
    `InputError` for settings that torch does not know.
    """

    def __init__(
        self,
        recording: Recording,
        capacity: float = inf,
        settings: AllocatorSettings | None = None,
        moments: EventTimes | None = None,
    ) -> None:
        self.recording, self.moments = recording, moments
        self.settings = settings or parsed(recording.allocator, recording.script)
        self.capacity = capacity
        self._allocator = CachingAllocator(self.settings, capacity)
        self.failure: OutOfMemory | None = None
        self._in_use = BlocksInUse(moments)
        self._changes = list(self._played())

    def with_expandable_segments(self) -> "Memory":
        """The memory with an allocator that maps pages as it needs them."""
        settings = replace(self.settings, expandable=True)
        return Memory(self.recording, self.capacity, settings, self.moments)

    @property
    def used_by_several(self) -> bool:
        """Whether a stream uses a block of another stream (`Tensor.record_stream`)."""
        return any(row.bytes < 0 for row in self.recording.memory)

    def at(self, moments: EventTimes) -> "Memory":
        """The memory played again with the moments of a played step."""
        return Memory(self.recording, self.capacity, self.settings, moments)

    def _played(self) -> Iterator[_Change]:
        live: dict[int, Allocation] = {}
        allocator = self._allocator
        for number, row in enumerate(self.recording.memory):
            before = allocator.allocated, allocator.reserved
            block = live.get(row.block)
            if row.bytes < 0:
                if block and block.stream != row.stream:
                    self._in_use.use(row.block, row.stream)
                continue
            if row.bytes:
                live[row.block] = block = row
                self._take(number, row)
            elif row.block:
                live.pop(row.block, None)
                allocator.give(row.block, in_use=self._in_use.give(row.block, row.event))
            else:
                allocator.empty()
            changed = allocator.allocated - before[0], allocator.reserved - before[1]
            yield _Change(row.event, block, *changed)

    def _take(self, number: int, row: Allocation) -> None:
        allocator = self._allocator
        for block in self._in_use.over(row.event):
            allocator.over(block)
        try:
            allocator.take(row.block, row.bytes, row.stream)
        except OutOfMemoryError:
            self.failure = OutOfMemory(
                row=number,
                bytes=row.bytes,
                line=self._line(row),
                allocated=float(allocator.allocated),
                reserved=float(allocator.reserved),
            )
            allocator.capacity = inf
            allocator.take(row.block, row.bytes, row.stream)

    def _line(self, row: Allocation) -> str:
        return self.recording.lines[row.line] if row.line >= 0 else NOWHERE

    def peak(self, since: int = -1) -> Peak:
        """The fullest moment from the event `since` to the end of the recorded step. Of equally
        full moments, the last counts."""
        most = level = reserved = highest = 0
        at = -1
        until = [*(change.event for change in self._changes[1:]), inf]
        for number, (change, next_one) in enumerate(zip(self._changes, until, strict=False)):
            level, reserved = level + change.allocated, reserved + change.reserved
            highest = max(highest, reserved)
            fuller = level > most or (level == most and change.allocated > 0)
            if fuller and next_one >= since:
                most, at = level, number
        parts, lines = Counter[str](), Counter[str]()
        for change in self._changes[: at + 1]:
            if change.block is not None:
                parts[PARTS[change.block.part]] += change.allocated
                lines[self._line(change.block)] += change.allocated
        last = self._changes[at].block if at >= 0 else None
        return Peak(
            allocated=float(most),
            reserved=float(highest),
            parts=_largest_first(parts),
            lines=_largest_first(lines),
            event=self._changes[at].event if at >= 0 else -1,
            line=self._line(last) if last else NOWHERE,
            retries=self._allocator.retries,
            failure=self.failure,
        )

    def before_step(self) -> dict[str, float]:
        """Bytes by part when the recorded step begins."""
        return added({}, *(_use(c).kept for c in self._changes if c.event < 0))

    def by_event(self) -> dict[int, MemoryUse]:
        """Uses of memory just before each event of the step."""
        uses: dict[int, list[MemoryUse]] = {}
        for change in self._changes:
            if change.event >= 0:
                uses.setdefault(change.event, []).append(_use(change))
        return {event: in_a_row(changes) for event, changes in uses.items()}


def fullest(memories: Sequence[Memory]) -> Memory:
    """The memory of the GPU that reserves most."""
    return max(memories, key=lambda memory: memory.peak().reserved)


def _use(change: _Change) -> MemoryUse:
    part = {} if change.block is None else {PARTS[change.block.part]: float(change.allocated)}
    bytes = {**part, BESIDE: float(change.reserved - change.allocated)}
    return MemoryUse(bytes, bytes if change.reserved > 0 else {})


def _largest_first(sizes: Counter[str]) -> dict[str, float]:
    return {name: float(size) for name, size in sizes.most_common() if size}
