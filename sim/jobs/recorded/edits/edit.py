"""An edit of a recording, and how events and blocks of memory are rewritten by it."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from sim.config.dataclass import dataclass
from sim.jobs.recorded.axes import DATA_AXIS, REPLICAS_AXIS, Axes
from sim.jobs.recorded.kernels import kernel_of
from sim.jobs.recorded.recording import Allocation, Event, Operator, Recording
from sim.jobs.recorded.setup import Recorded
from sim.model.kernels import Kernel

_CALLS = ("collective", "send", "recv")
Time = Callable[[Kernel], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A `change` of the script `at` a line ("" where nobody knows it), the `line` that it makes
    cheaper ("" where it is not of one line), a sentence of what it mends (`why`), and the recording
    that it makes of one with these axes. A step then trains `samples` times as many samples."""

    change: str
    why: str
    line: str = ""
    at: str = ""
    made: Callable[[Recording, Axes], Recording]
    samples: float = 1.0


def rewritten(
    recording: Recording,
    new: Mapping[int, Sequence[Event]],
    *,
    operators: Sequence[Operator] = (),
    dropped_blocks: frozenset[int] = frozenset(),
    memory: Sequence[Allocation] | None = None,
) -> Recording:
    """A recording in which other events stand for some by their numbers, none for those that are
    dropped. `operators` are appended to its own. Blocks are taken and given back before the event
    that they were; `dropped_blocks` are not taken at all. Results of collectives that are dropped
    are waited for no longer; others still are where a kernel is dropped that read them, by the
    next kernel of its stream."""
    rows_of_events = [new.get(n, (event,)) for n, event in enumerate(recording.events)]
    there = {event.mark for row in rows_of_events for event in row if event.kind in _CALLS}
    waiting: defaultdict[int, set[int]] = defaultdict(set)  # on each stream
    events: list[Event] = []
    places = []
    for event, row in zip(recording.events, rows_of_events, strict=True):
        places.append(len(events))
        for own in row:
            if own.kind == "kernel" and (own.reads or waiting[own.stream]):
                reads = {*own.reads, *waiting.pop(own.stream, ())} & there
                own = replace(own, reads=tuple(sorted(reads)))
            events.append(own)
        waiting[event.stream] |= {*event.reads}.difference(*(own.reads for own in row))
    places.append(len(events))
    rows = recording.memory if memory is None else memory
    return replace(
        recording,
        events=tuple(events),
        operators=(*recording.operators, *operators),
        memory=tuple(
            replace(row, event=places[row.event]) if row.event >= 0 else row
            for row in rows
            if row.block not in dropped_blocks
        ),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Block:
    """A block of memory that is taken during the step, before the event `taken`, and given back
    before the event `given` (None: not in this step)."""

    number: int
    bytes: int
    taken: int
    given: int | None


def blocks(recording: Recording) -> dict[int, list[Block]]:
    """The blocks that are taken in the step, by the event before which they are."""
    ends = {row.block: row.event for row in recording.memory if not row.bytes}
    found: defaultdict[int, list[Block]] = defaultdict(list)
    for row in recording.memory:
        if row.bytes > 0 and row.event >= 0:
            found[row.event].append(Block(row.block, row.bytes, row.event, ends.get(row.block)))
    return found


def kernel_events(recording: Recording) -> Iterator[tuple[int, Event, Operator]]:
    """The kernels of the step: numbers of their events, events, operators."""
    for number, event in enumerate(recording.events):
        if event.kind == "kernel":
            yield number, event, recording.operators[event.operator]


def seconds_of(recording: Recording, time: Time) -> list[float]:
    """The device's seconds of each event."""
    each = [time(kernel_of(operator)) for operator in recording.operators]
    return [each[e.operator] if e.kind == "kernel" else 0.0 for e in recording.events]


def most(weights: Mapping[str, float]) -> str:
    """The line that weighs most; "" where there is none."""
    named = Counter({line: weight for line, weight in weights.items() if line})
    return named.most_common(1)[0][0] if named else ""


def place_of(setup: Recorded, *names: str) -> str:
    """The line of the first of these places of the script that is known; "" for none."""
    places = setup.stages[0][0].places
    return next((places[name] for name in names if name in places), "")


def line_of(recording: Recording, event: Event) -> str:
    """The line of an event; "" where it has none."""
    return recording.lines[event.line] if event.line >= 0 else ""


def data_calls(recording: Recording, axes: Axes, *kinds: str) -> list[int]:
    """The numbers of collectives of these kinds whose groups have data of their own."""
    data = {DATA_AXIS, REPLICAS_AXIS}
    return [
        number
        for number, event in enumerate(recording.events)
        if event.kind == "collective" and event.name in kinds and data & {*axes.of[event.group]}
    ]
