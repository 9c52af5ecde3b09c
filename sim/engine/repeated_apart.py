"""The step time of stages that end a step at different times (`Program.apart`)."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sim.engine.record import Record
from sim.engine.timeline import Role
from sim.engine.tracks import COMMUNICATION
from sim.program.operations import COMPUTE_STREAM


def repeated_apart(record: Record, opened: Sequence[bool]) -> Record:
    """The record with its step time; `opened` marks the stages that begin with opening work."""
    spans = (_span(record, role, opened[role.stage]) for role in record.roles)
    return replace(record, period=max(spans))


def _span(record: Record, role: Role, opened: bool) -> float:
    """Seconds from the start of a role's first pass to the role's end, plus its opening work."""
    tracks = [track for track in record.tracks if track.role == role.index and len(track.end)]
    end = max((float(track.end[-1]) for track in tracks), default=0.0)
    compute = next((track for track in tracks if track.stream == COMPUTE_STREAM), None)
    if compute is None:
        return end
    passes = np.flatnonzero(compute.parts != COMMUNICATION)[int(opened) :]
    opening = float(compute.end[0]) if opened else 0.0
    return end - float(compute.start[passes[0]]) + opening if len(passes) else end
