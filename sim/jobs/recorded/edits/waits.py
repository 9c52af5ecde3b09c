"""Edits that remove the host's waits for the device. A waiting host launches nothing ahead."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial

from sim.jobs.recorded.axes import Axes
from sim.jobs.recorded.edits.edit import Edit, line_of, rewritten
from sim.jobs.recorded.recording import Event, Recording
from sim.jobs.recorded.setup import Recorded

_COPY = (
    "copy from pinned memory without waiting: pin_memory=True in the loader, "
    ".to(device, non_blocking=True)"
)
_READ = (
    "read no value of the device in the step (.item(), .cpu(), print): keep the tensor, and read "
    "it every 100 steps"
)


def edits(setup: Recorded) -> Iterator[Edit]:
    """Yield an edit for each line with waits, and an edit for all lines together."""
    often, copies = Counter[str](), set[str]()
    for recording, _ in setup.stages:
        for number, event in enumerate(recording.events):
            if event.kind == "sync":
                often[line_of(recording, event)] += 1
                if number and _is_copy(recording, recording.events[number - 1]):
                    copies.add(line_of(recording, event))
    for line, count in often.items():
        yield _edit((line,), count, _COPY if line in copies else _READ)
    if len(often) > 1:
        changes = [_COPY] * bool(copies) + [_READ] * bool(often.keys() - copies)
        yield _edit(tuple(often), often.total(), "; ".join(changes))


def _edit(lines: tuple[str, ...], count: int, change: str) -> Edit:
    others = f", also at {', '.join(filter(None, lines[1:]))}" if len(lines) > 1 else ""
    unknown = "" if any(lines) else " (the recording does not say at which line)"
    times = "once" if count == 1 else f"{count} times"
    return Edit(
        change=change,
        why=f"the host waits for the device {times} a step{others}{unknown}",
        line=lines[0],
        at=lines[0],
        made=partial(without_waits, lines=lines),
    )


def _is_copy(recording: Recording, event: Event) -> bool:
    """Whether an event is a copy from the host."""
    if event.kind != "kernel":
        return False
    operator = recording.operators[event.operator]
    return operator.name == "aten._to_copy" and not operator.inputs


def without_waits(recording: Recording, axes: Axes, lines: Sequence[str]) -> Recording:
    """The recording in which the host no longer waits at these lines."""
    return rewritten(
        recording,
        {
            number: ()
            for number, event in enumerate(recording.events)
            if event.kind == "sync" and line_of(recording, event) in lines
        },
    )
