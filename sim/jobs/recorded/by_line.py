"""Which lines of a script take the device's time, and which hold its memory at the peak?"""

from collections import Counter, defaultdict

from sim.hardware.kernels.dispatch import Phase
from sim.jobs.recorded.kernels import kernel_of
from sim.jobs.recorded.memory import NOWHERE, Memory, Peak, fullest
from sim.jobs.recorded.recording import Recording
from sim.jobs.recorded.setup import Recorded
from sim.model.kernels import Kernel
from sim.results.by_line import PARTS, ByLine, Line, Moment, Part

_PHASES: dict[Phase, str] = {
    "forward": "a forward pass",
    "backward": "a backward pass",
    "optimizer": "the optimizer's step",
}


def by_line(setup: Recorded) -> ByLine:
    """The lines of the stage that computes longest, and the fullest moment of all."""
    stages = [recording for recording, _ in setup.stages]
    seconds = [sum(time * often for _, time, often in rows) for rows in kernels(setup)]
    longest = stages[seconds.index(max(seconds))]
    return ByLine(lines=tuple(_lines(setup, longest)), fullest=_fullest_moment(setup))


def kernels(setup: Recorded) -> list[list[tuple[Kernel, float, int]]]:
    """For each stage its kernels, with their seconds and how often a step calls them."""
    return [
        [(kernel, setup.time(kernel), often) for kernel, often in _calls(recording)]
        for recording, _ in setup.stages
    ]


def _calls(recording: Recording) -> list[tuple[Kernel, int]]:
    often = Counter(event.operator for event in recording.events if event.kind == "kernel")
    return [(kernel_of(recording.operators[number]), count) for number, count in often.items()]


def _lines(recorded: Recorded, recording: Recording) -> list[Line]:
    """The lines of one recording, those of the longest kernels first."""
    times = [recorded.time(kernel_of(operator)) for operator in recording.operators]
    found: defaultdict[int, dict[Part, float]] = defaultdict(lambda: dict.fromkeys(PARTS, 0.0))
    for event in recording.events:
        if event.kind == "kernel":
            part: Part = "again" if event.again else event.phase
            found[event.line][part] += times[event.operator]
    places = (*recording.lines, NOWHERE)  # whose number is -1
    named = (Line(line=places[line], seconds=parts) for line, parts in found.items())
    return sorted(named, key=lambda line: -line.total)


def _fullest_moment(recorded: Recorded) -> Moment | None:
    """The fullest moment of the stage that needs most memory; None where none was recorded."""
    memory = fullest(recorded.memories)
    peak = memory.peak()
    if not peak.allocated:
        return None
    in_step = memory.peak(since=0).allocated
    return Moment(
        allocated=peak.allocated,
        in_step=in_step,
        when=_when(memory, peak, before=in_step < peak.allocated),
        lines=dict(peak.lines),
    )


def _when(memory: Memory, peak: Peak, *, before: bool) -> str:
    events = memory.recording.events
    if before:
        return f"before the recorded step, at {peak.line}"
    if peak.event < 0:
        return "as the recorded step begins"
    phase = events[min(peak.event, len(events) - 1)].phase
    return f"in {_PHASES[phase]}, at {peak.line}"
