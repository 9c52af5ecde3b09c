"""The tracks of a record: arrays that tell when every step of a stream ran."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sim.config.dataclass import dataclass
from sim.engine.timeline import Role
from sim.program.causes import Cause
from sim.program.schedule import KINDS, Action

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

COMMUNICATION = -1  # in `Track.parts`: the step is a communication


def action_row(action: Action | None) -> tuple[int, int, int]:
    """A pass as numbers, as in `Track.actions`."""
    if action is None:
        return (-1, -1, -1)
    return KINDS.index(action.kind), action.microbatch, action.chunk


@dataclass(frozen=True, slots=True, eq=False)
class Track:
    """One stream of a role, step by step.

    `start` and `end` are when a step was ready and when it ended [steps]. `parts` has the row of a
    computation's seconds by cause, or `COMMUNICATION`. The transfers of a communication are columns
    [steps, most transfers]: `transfers` are their rows in the record's `kinds` (-1: none), `begun`
    and `arrived` when they began and ended. `actions` are the passes of computations [steps, 3]:
    kind (its place in `KINDS`), microbatch and chunk, or -1 without a pass.
    """

    role: int
    stream: str
    start: Floats
    end: Floats
    parts: Indices
    transfers: Indices
    begun: Floats
    arrived: Floats
    actions: Indices


@dataclass(frozen=True, eq=False, kw_only=True)
class Runs:
    """The tracks of runs that differ only in durations; runs are the last axis of all times.

    `parts` and `kinds` are as in a record; seconds by cause may be arrays [columns]. Each run has
    its step time `step`, its `end`, and the end `passes_end` of its last pass [columns].
    """

    roles: tuple[Role, ...]
    tracks: tuple[Track, ...]
    parts: Sequence[Mapping[Cause, float | Floats]]
    kinds: Sequence[tuple[Cause, str]]
    end: Floats
    passes_end: Floats
    step: Floats

    @property
    def steps(self) -> int:
        """The number of steps of a run."""
        return sum(len(track.start) for track in self.tracks)

    def chosen(self, columns: Indices) -> "Runs":
        """The runs in some columns."""
        if len(columns) == len(self.end):
            return self
        return replace(
            self,
            tracks=tuple(of_columns(track, columns) for track in self.tracks),
            parts=[
                {cause: row if np.ndim(row) == 0 else row[columns] for cause, row in part.items()}  # type: ignore[index]
                for part in self.parts
            ],
            end=self.end[columns],
            passes_end=self.passes_end[columns],
            step=self.step[columns],
        )

    def by_role(self) -> list[list[Track]]:
        """The tracks of each role."""
        found: list[list[Track]] = [[] for _ in self.roles]
        for track in self.tracks:
            found[track.role].append(track)
        return found


def of_columns(track: Track, columns: Indices | int) -> Track:
    """A track in some columns, or in a single column without the axis of columns."""
    times = (track.start, track.end, track.begun, track.arrived)
    start, end, begun, arrived = (time[..., columns] for time in times)
    return replace(track, start=start, end=end, begun=begun, arrived=arrived)
