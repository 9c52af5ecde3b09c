"""The allocated memory of a recorded step, from kernel to kernel.

A pass without a collective is a single computation of the program. Within it, a kernel begins after
a share of the time: the earlier kernels' share of the computation's device seconds.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

import numpy as np

from sim.engine.memory_curve import MemoryCurve, drawn
from sim.engine.record import Record
from sim.jobs.recorded.memory import Memory
from sim.jobs.recorded.program import EventPlaces
from sim.jobs.recorded.recording import Recording
from sim.program.memory import NOTHING, in_a_row
from sim.program.memory_levels import levels

_POINTS = 64  # the most points of the curve within a computation

_Span = tuple[float, float]  # begin and end (s)


def curve(
    memory: Memory, noted: EventPlaces, seconds: Sequence[float], record: Record, stage: int
) -> MemoryCurve:
    """The curve of a stage. `seconds` are the device's seconds for each operator of the stage's
    recording. Memory changes in the host's order of events."""
    uses = memory.by_event()
    spans = _spans(record, stage)
    moments = _moments(memory.recording, noted.places, seconds, spans)
    changes = ((place, begin, uses[n]) for n, (place, begin) in enumerate(moments) if n in uses)
    rows = [list(same) for _, same in groupby(changes, key=lambda change: change[0])]
    joined = [*(in_a_row(use for _, _, use in row) for row in rows), NOTHING]  # the step's end
    step = levels(memory.before_step(), joined, np.arange(len(joined)))
    starts = np.array([*(begin for (_, begin, _), *_ in rows), record.end])
    fuller = [use.highest > max(use.left, 0.0) for use in joined]  # fuller than before and after
    return drawn(stage, step, starts, np.where(fuller, record.end, starts))


def _spans(record: Record, stage: int) -> dict[str, _Span]:
    """When operations began and ended. An operation played in pieces has a first span `NAME.0` and
    a last span `NAME`."""
    role = next(role.index for role in record.roles if role.stage == stage)
    found = {s.name: (s.start, s.end) for s in record.timeline.spans if s.role == role}
    return {name: (found.get(f"{name}.0", span)[0], span[1]) for name, span in found.items()}


def _moments(
    recording: Recording,
    places: Sequence[Sequence[str]],
    seconds: Sequence[float],
    spans: Mapping[str, _Span],
) -> Iterator[tuple[tuple[str, int], float]]:
    """Yield for each event its place on the curve, which neighbouring events may share, and when
    the event begins (s)."""
    times = [seconds[e.operator] if e.kind == "kernel" else 0.0 for e in recording.events]
    names = [place[-1] if place else "" for place in places]
    whole, passed = Counter[str](), Counter[str]()
    for name, time in zip(names, times, strict=True):
        whole[name] += time  # type: ignore[assignment]
    for name, time in zip(names, times, strict=True):
        share = passed[name] / whole[name] if whole[name] else 1.0
        start, end = spans.get(name, (0.0, 0.0))
        yield (name, int(_POINTS * share)), start + share * (end - start)
        passed[name] += time  # type: ignore[assignment]
