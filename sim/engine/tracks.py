"""When every step of one stream ran, in arrays: what a record consists of."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sim.config.dataclass import dataclass
from sim.engine.timeline import Role
from sim.program.actions import KINDS, Action
from sim.program.causes import Cause

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

COMMUNICATION = -1  # the row of a step that is no computation


def action_row(action: Action | None) -> tuple[int, int, int]:
    """A pass as numbers, -1 of none."""
    if action is None:
        return (-1, -1, -1)
    return KINDS.index(action.kind), action.microbatch, action.chunk


@dataclass(frozen=True, slots=True, eq=False)
class Track:
    """One stream of a role, step by step.

    `start` and `end` are when a step was ready and when it ended [steps]; `parts` the row of a
    computation's seconds by cause, `COMMUNICATION` for others. The transfers that a communication
    took part in are columns: `transfers` are their rows in the record's table (-1: none),
    `begun` and `arrived` when they began and ended [steps, most]. `actions` are the passes that
    computations belong to [steps, 3]: kind (its place in `KINDS`), microbatch, chunk; -1 of none.
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
    """The tracks of runs that differ in durations alone, a column each: the last axis of all times.

    `parts` and `kinds` are those of a record, seconds by cause a number or an array of columns. A
    run takes a `step` of its time until the `end`; its last pass ended at `passes_end` [columns].
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
        """The steps of a run."""
        return sum(len(track.start) for track in self.tracks)

    def chosen(self, columns: Indices) -> "Runs":
        """Some of the runs."""
        if len(columns) == len(self.end):
            return self
        return replace(
            self,
            tracks=tuple(of_columns(track, columns) for track in self.tracks),
            parts=[
                {cause: own if np.ndim(own) == 0 else own[columns] for cause, own in part.items()}  # type: ignore[index]
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
    """A track in some columns, or without the axis in one."""
    times = (track.start, track.end, track.begun, track.arrived)
    start, end, begun, arrived = (time[..., columns] for time in times)
    return replace(track, start=start, end=end, begun=begun, arrived=arrived)
