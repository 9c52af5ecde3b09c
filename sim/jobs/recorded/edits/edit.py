"""An edit of a recording, and functions that rewrite its events and blocks of memory."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from sim.config.dataclass import dataclass
from sim.jobs.recorded.axes import DATA_AXIS, REPLICAS_AXIS, Axes, calls_along
from sim.jobs.recorded.kernels import kernel_of
from sim.jobs.recorded.recording import Allocation, Event, Operator, Recording
from sim.jobs.recorded.setup import Recorded
from sim.model.kernels import Kernel

_CALLS = ("collective", "send", "recv")
Time = Callable[[Kernel], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A `change` of the script `at` a line ("": unknown). `why` names the problem that the change
    solves. `line` is the line that becomes cheaper ("": several lines). `made` takes a recording
    and its axes, and returns the changed recording. `samples` is the factor by which the samples of
    a step grow."""

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
    """The recording with some events replaced. `new` maps the number of an event to the events that
    take its place; an empty sequence drops the event. `operators` are appended to the recording's
    own. Blocks keep the events before which they are allocated and freed; `dropped_blocks` are
    never allocated. Nothing waits for dropped collectives. If a dropped kernel waited for a kept
    collective, the next kernel of its stream waits instead."""
    rows_of_events = [new.get(n, (event,)) for n, event in enumerate(recording.events)]
    there = {event.mark for row in rows_of_events for event in row if event.kind in _CALLS}
    waiting: defaultdict[int, set[int]] = defaultdict(set)  # by stream: marks for its next kernel
    events: list[Event] = []
    places = []
    for event, row in zip(recording.events, rows_of_events, strict=True):
        places.append(len(events))
        for entry in row:
            if entry.kind == "kernel" and (entry.reads or waiting[entry.stream]):
                reads = {*entry.reads, *waiting.pop(entry.stream, ())} & there
                entry = replace(entry, reads=tuple(sorted(reads)))
            events.append(entry)
        waiting[event.stream] |= {*event.reads}.difference(*(entry.reads for entry in row))
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
    """A block of memory that is allocated during the step, before the event `taken`, and freed
    before the event `given` (None: not in this step)."""

    number: int
    bytes: int
    taken: int
    given: int | None


def blocks(recording: Recording) -> dict[int, list[Block]]:
    """The blocks that are allocated in the step, by the number of the event just after it."""
    ends = {row.block: row.event for row in recording.memory if not row.bytes}
    found: defaultdict[int, list[Block]] = defaultdict(list)
    for row in recording.memory:
        if row.bytes > 0 and row.event >= 0:
            found[row.event].append(Block(row.block, row.bytes, row.event, ends.get(row.block)))
    return found


def kernel_events(recording: Recording) -> Iterator[tuple[int, Event, Operator]]:
    """Yield the kernels of the step: number of the event, event, operator."""
    for number, event in enumerate(recording.events):
        if event.kind == "kernel":
            yield number, event, recording.operators[event.operator]


def seconds_of(recording: Recording, time: Time) -> list[float]:
    """The device's seconds of each event."""
    each = [time(kernel_of(operator)) for operator in recording.operators]
    return [each[e.operator] if e.kind == "kernel" else 0.0 for e in recording.events]


def seconds_by_line(
    setup: Recorded, chosen: Callable[[Event, Operator], bool]
) -> Mapping[str, float]:
    """The device's seconds of the `chosen` kernels of all stages, by line."""
    weights: defaultdict[str, float] = defaultdict(float)
    for recording, _ in setup.stages:
        seconds = seconds_of(recording, setup.time)
        for number, event, operator in kernel_events(recording):
            if chosen(event, operator):
                weights[line_of(recording, event)] += seconds[number]
    return weights


def most(weights: Mapping[str, float]) -> str:
    """The line with the largest weight; "" if there is no line."""
    named = Counter({line: weight for line, weight in weights.items() if line})
    return named.most_common(1)[0][0] if named else ""


def place_of(setup: Recorded, *names: str) -> str:
    """The line of the first known place among these `names` (`Recording.places`), or ""."""
    places = setup.stages[0][0].places
    return next((places[name] for name in names if name in places), "")


def line_of(recording: Recording, event: Event) -> str:
    """The line of an event, or ""."""
    return recording.lines[event.line] if event.line >= 0 else ""


def data_calls(recording: Recording, axes: Axes, *kinds: str) -> list[int]:
    """The events (by number) of collectives of these kinds along data-parallel axes."""
    return calls_along(recording, axes, (DATA_AXIS, REPLICAS_AXIS), kinds)
