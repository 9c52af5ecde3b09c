"""What has been recorded so far? Events and blocks of memory, in the order of the host."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field, replace
from itertools import count
from typing import Any
from weakref import ref

from sim.config.dataclass import dataclass
from sim.hardware.kernels.dispatch import Phase
from sim.jobs.recorded.recording import (
    PARTS,
    Allocation,
    Event,
    EventKind,
    Group,
    InternTable,
    Operator,
    Pass,
)


@dataclass(slots=True)
class Row:
    """An allocation whose part (parameters, gradients ...) is not yet known."""

    event: int
    block: int
    bytes: int
    stream: int
    line: int
    phase: Phase
    passed: int  # how many changes of phase came before the allocation
    again: bool


@dataclass(frozen=True, slots=True)
class Cut:
    """A place in a log: the numbers of events, rows of memory, samples and batches of a loader, and
    backward passes before it."""

    events: int
    rows: int
    samples: int
    batches: int
    backwards: int

    def learns(self, begin: "Cut") -> int:
        """The samples of a step since `begin`. A loader that fetches ahead hands out fewer batches
        in its last steps than there are backward passes. The mean batch then counts for each pass,
        if there was a batch for each backward pass so far."""
        passes = self.backwards - begin.backwards
        if self.batches - begin.batches < passes and self.backwards <= self.batches:
            return passes * self.samples // self.batches
        return self.samples - begin.samples


@dataclass
class Log:
    """Collects events and memory; streams are numbered in the order of their first use."""

    phase: Phase = "forward"
    seen: int = 0  # operators that have run
    updates: int = 0  # updates of optimizers
    within: int = -1  # the number of the running pass of a pipeline's schedule; -1: none
    serial: Iterator[int] = field(default_factory=lambda: count(1))
    events: list[Event] = field(default_factory=list)
    memory: list[Row] = field(default_factory=list)
    parts: dict[int, int] = field(default_factory=dict)  # by block, if its part is known
    began: bool = False
    views: int = 0  # views made since the last kernel
    over: bool = False  # the step has ended; nothing more is recorded
    samples: int = 0  # samples that loaders have handed out
    batches: int = 0  # batches that loaders have handed out
    backwards: int = 0  # backward passes that have ended
    products: Counter[str] = field(default_factory=Counter)  # by phase; "aside": no gradient
    waits: set[int] = field(default_factory=set)  # lines at which the host waits for the device
    places: dict[str, str] = field(default_factory=dict)  # as `Recording.places`
    where: Callable[[], str] = lambda: ""  # the script's present line, or ""
    asides: dict[int, str] = field(default_factory=dict)  # lines, by event without a gradient
    graph: int = 0  # the CUDA graph that is being launched
    backward_ended: Callable[[], object] = lambda: None  # called after each backward pass
    waited: Callable[[], object] = lambda: None  # called at each wait of the host
    results: dict[int, int] = field(default_factory=dict)  # collectives, by storage they write
    written: dict[int, list[ref[Any]]] = field(default_factory=dict)  # results, by collective
    notes: InternTable[str] = field(default_factory=InternTable)
    operators: InternTable[Operator] = field(default_factory=InternTable)
    groups: InternTable[Group] = field(default_factory=InternTable)
    lines: InternTable[str] = field(default_factory=InternTable)
    passes: InternTable[Pass] = field(default_factory=InternTable)
    _blocks: dict[int, list[Any]] = field(default_factory=dict)
    _streams: dict[int, int] = field(default_factory=dict)
    _last: Phase = "forward"
    _passed: int = 0

    def begin(self) -> None:
        """Begin to record events. Before this call, only memory is recorded."""
        self.views = 0
        self.began = True

    def cut(self) -> Cut:
        """The place that the log has reached."""
        return Cut(len(self.events), len(self.memory), self.samples, self.batches, self.backwards)

    def between(self, begin: Cut, end: Cut) -> None:
        """Keep only the step between two places, and the memory allocated before the step."""
        self.over = True
        self.events = self.events[begin.events : end.events]
        self.memory = self.memory[: end.rows]
        for number, row in enumerate(self.memory):
            row.event = -1 if number < begin.rows else row.event - begin.events
        within = range(begin.events, end.events)
        self.asides = {n - begin.events: line for n, line in self.asides.items() if n in within}
        self.samples = end.learns(begin)

    def optimizer_begins(self) -> None:
        """Let operators after the last backward pass (clipping) count as the optimizer's."""
        self.phase = "optimizer"
        for number in reversed(range(len(self.events))):
            if self.events[number].phase != "forward":
                break
            self.events[number] = replace(self.events[number], phase="optimizer")

    def note_place(self, name: str, line: str | None = None) -> None:
        """Record the script's present line, or the given `line`, as the place of a name
        (`Recording.places`), unless its place is known."""
        if place := self.where() if line is None else line:
            self.places.setdefault(name, place)

    def add(self, kind: EventKind, stream: int, **rest: Any) -> None:
        if kind == "sync":
            self.waits.add(rest["line"])
            self.waited()
        self._add(kind, self.stream(stream), **rest)

    def _add(self, kind: EventKind, stream: int, **rest: Any) -> None:
        if self.over or not self.began:
            return
        fields = {"phase": self.phase, "within": self.within, **rest}
        self.events.append(Event(kind=kind, stream=stream, **fields))

    def sync_all(self, current: int, line: int) -> None:
        """Record that the host waits for messages in flight, and for all streams with work."""
        self.waits.add(line)
        if not self.began:
            return
        sent = (e for e in self.events if e.kind in ("collective", "send", "recv"))
        awaited = {e.mark for e in self.events if e.kind == "done"}
        for mark in [e.mark for e in sent if not e.blocking and e.mark not in awaited]:
            self.add("done", current, mark=mark)
        for stream in sorted({self.stream(current), *(e.stream for e in self.events)}):
            self._add("sync", stream, line=line)

    def passed(self, mark: int) -> bool:
        """Whether a recorded event has happened: always, since a capture takes no device time."""
        return True

    def milliseconds(self, first: int, last: int) -> float:
        """The time between two events, which is made up."""
        return 1.0

    def line(self, number: int) -> str:
        """The line of the script with this number; -1 stands for none."""
        return self.lines.entries[number] if number >= 0 else "no line of the script"

    def stream(self, identity: int) -> int:
        """The number of a stream; the default stream has number 0."""
        return self._streams.setdefault(identity, len(self._streams))

    def track(
        self, storage: Any, stream: int, line: int, *, again: bool = False, resized: bool = False
    ) -> None:
        """Record a storage that an operator has made (`again`: by recomputation) or that has
        changed its size."""
        key, size, known = id(storage), storage.nbytes(), self._blocks.get(id(storage))
        if known and known[0]() is storage:
            if size != known[1]:
                self._allocate(known, size, stream, line, again)
        elif not resized:
            block = [ref(storage, lambda _: self._freed(key)), 0, 0]
            self._blocks[key] = block
            self._allocate(block, size, stream, line, again)

    def used(self, storage: Any, stream: int) -> None:
        """Record that a storage is used on this stream, too (`Tensor.record_stream`)."""
        if block := self.block_of(storage):
            self._row(block, -1, self.stream(stream), -1)

    @contextmanager
    def buffers(self) -> Iterator[None]:
        """Let the blocks that are allocated in this context be buffers, unless they hold states."""
        first = len(self.memory)
        yield
        blocks = (row.block for row in self.memory[first:] if row.bytes > 0)
        self.parts |= dict.fromkeys(blocks, PARTS.index("buffers"))

    def emptied(self) -> None:
        """Record that the allocator returns its cached blocks to the device."""
        self._row(0, 0, 0, -1)

    def block_of(self, storage: Any) -> int:
        """The number of a storage's block; 0 if it has none."""
        known = self._blocks.get(id(storage))
        return known[2] if known and known[0]() is storage else 0

    def _freed(self, key: int) -> None:
        block = self._blocks.pop(key, None)
        if block is not None:
            self._allocate(block, 0, 0, -1)
        self.results.pop(key, None)

    def _allocate(
        self, block: list[Any], size: int, stream: int, line: int, again: bool = False
    ) -> None:
        if block[1]:
            self._row(block[2], 0, 0, -1)
        block[1] = size
        if size:
            block[2] = next(self.serial)
            self._row(block[2], size, self.stream(stream), line, again)

    def _row(self, block: int, size: int, stream: int, line: int, again: bool = False) -> None:
        if self.over:  # a script frees memory as it ends, but held it in the step
            return
        if self.phase != self._last:
            self._last, self._passed = self.phase, self._passed + 1
        now = len(self.events) if self.began else -1
        self.memory.append(Row(now, block, size, stream, line, self.phase, self._passed, again))

    def allocations(self) -> tuple[Allocation, ...]:
        """All rows, with the parts of their blocks."""
        ends = {row.block: row for row in self.memory if not row.bytes}
        parts = {
            row.block: self.parts.get(row.block, _part(row, ends.get(row.block)))
            for row in self.memory
            if row.bytes > 0
        }
        return tuple(
            Allocation(r.event, r.block, r.bytes, r.stream, r.line, parts.get(r.block, 0))
            for r in self.memory
        )


def _part(row: Row, end: Row | None) -> int:
    """The part of a block that holds no state. Activations are kept from the forward pass for the
    backward pass, or recomputed for it, or never freed in the step. Buffers were allocated before
    the step and are never freed. Other blocks are temporary."""
    if end is None:
        part = "buffers" if row.event < 0 else "activations"
    elif row.again or (row.phase == "forward" and row.passed != end.passed):
        part = "activations"
    else:
        part = "temporary"
    return PARTS.index(part)
