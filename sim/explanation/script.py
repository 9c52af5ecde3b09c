"""A recorded step by the lines of its script: which take the device's time, and which hold its
memory at the fullest moment."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from sim.hardware.kernels.dispatch import Phase
from sim.model.kernels import Kernel
from sim.recording.kernels import kernel_of
from sim.recording.memory import NOWHERE, Memory, Peak, fullest
from sim.recording.recording import Recording
from sim.simulate_recording import Recorded

Part = Literal["forward", "again", "backward", "optimizer"]
PARTS: tuple[Part, ...] = ("forward", "again", "backward", "optimizer")
_PHASES: dict[Phase, str] = {
    "forward": "a forward pass",
    "backward": "a backward pass",
    "optimizer": "the optimizer's step",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of the script ("train.py:12") and the device's seconds a step of the kernels that come
    from it, by `PARTS`; backward kernels are of the line that they differentiate."""

    line: str
    seconds: dict[Part, float]

    @property
    def total(self) -> float:
        return sum(self.seconds.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The fullest moment of the fullest GPU: bytes `allocated`, when it is, and how many of them
    each line of the script has taken, the most first; `in_step` are the most bytes that are
    allocated during the recorded step."""

    allocated: float
    in_step: float
    when: str
    lines: dict[str, float]


def longest(recorded: Recorded) -> Recording:
    """The recording of the stage that computes longest."""
    stages = [own for own, _ in recorded.stages]
    return max(stages, key=lambda own: sum(recorded.time(k) * n for k, n in kernels(own)))


def kernels(own: Recording) -> Iterator[tuple[Kernel, int]]:
    """Each kernel of a step, and how often it is called."""
    often = Counter(event.operator for event in own.events if event.kind == "kernel")
    for number, count in often.items():
        yield kernel_of(own.operators[number]), count


def lines(recorded: Recorded, own: Recording) -> list[Line]:
    """The lines of one recording, those of the longest kernels first."""
    times = [recorded.time(kernel_of(operator)) for operator in own.operators]
    found: defaultdict[int, dict[Part, float]] = defaultdict(lambda: dict.fromkeys(PARTS, 0.0))
    for event in own.events:
        if event.kind == "kernel":
            part: Part = "again" if event.again else event.phase
            found[event.line][part] += times[event.operator]
    places = (*own.lines, NOWHERE)  # whose number is -1
    named = (Line(line=places[line], seconds=parts) for line, parts in found.items())
    return sorted(named, key=lambda one: -one.total)


def fullest_moment(recorded: Recorded) -> Moment | None:
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
