"""The record of a run: when every step of every stream ran, in arrays.

Accounts are read off the arrays. Spans and rates are made only when they are asked for
(`sim.engine.spans`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from sim.config.dataclass import dataclass
from sim.engine.costs import Parts
from sim.engine.folded import CommunicateStep, FoldedProgram, LinkClass, Step
from sim.engine.timeline import Deferred, Played, Role, Timeline
from sim.engine.tracks import Floats, Indices, Runs, Track, of_columns
from sim.program.causes import Cause

if TYPE_CHECKING:
    from sim.engine.spans import Spans


@dataclass(frozen=True, eq=False, kw_only=True)
class Record:
    """All tracks of one run; `program` returns their steps when they are needed.

    `parts` holds the distinct splits of computations by cause, `kinds` the (cause, kind) of
    transfers. `passes_end` is when the last pass ended. `engine` names the engine that played the
    run, and `because` says why. Usually a step takes until `end`. It takes the `period` instead if
    stages end a step at different times (`Program.apart`) or pipelines do not drain. If they do not
    drain, `base` is the record of the same program with fewer steps; `more` is the difference.

    The record of a replay knows two facts without its steps. `moments` tells when a stage's
    operations began and ended, given the places of their passes in the stage's order and their
    numbers in the pass (`sim.program.memory_levels.in_order`). `carried` tells for each link the
    bytes that keep it busy, with and without the bytes that protocols add.
    """

    roles: tuple[Role, ...]
    tracks: Sequence[Track]
    parts: Sequence[Parts]
    kinds: Sequence[tuple[Cause, str]]
    end: float
    passes_end: float
    steps: int
    program: Callable[[], FoldedProgram] = field(repr=False)
    events: int = 0
    engine: str = "replay"
    because: str = "no transfers share a link"
    period: float | None = None
    base: "Record | None" = None
    more: int = 1
    moments: Callable[[int, Indices, Indices], tuple[Floats, Floats]] | None = None
    carried: Callable[[], Mapping[LinkClass, tuple[float, float]]] | None = None

    @property
    def step_time(self) -> float:
        """Seconds from one step to the next."""
        return self.end if self.period is None else self.period

    @classmethod
    def of(cls, runs: Runs, column: int, program: Callable[[], FoldedProgram]) -> "Record":
        """The record of one column of runs that were played without a clock."""
        return cls(
            roles=runs.roles,
            tracks=tuple(of_columns(track, column) for track in runs.tracks),
            parts=[
                {
                    cause: float(np.broadcast_to(seconds, runs.end.shape)[column])
                    for cause, seconds in part.items()
                }
                for part in runs.parts
            ],
            kinds=runs.kinds,
            end=float(runs.end[column]),
            passes_end=float(runs.passes_end[column]),
            steps=runs.steps,
            program=program,
        )

    @property
    def runs(self) -> Runs:
        """This run as runs with a single column."""
        return Runs(
            roles=self.roles,
            tracks=tuple(_in_a_column(track) for track in self.tracks),
            parts=self.parts,
            kinds=self.kinds,
            end=np.array([self.end]),
            passes_end=np.array([self.passes_end]),
            step=np.array([self.step_time]),
        )

    def beyond(self, base: "Record", more: int) -> "Record":
        """The record with a period: the mean of its last `more` steps, which `base` lacks."""
        return replace(self, period=(self.end - base.end) / more, base=base, more=more)

    @cached_property
    def timeline(self) -> Timeline:
        """The spans of all steps."""
        return Timeline(
            roles=self.roles,
            spans=Played(lambda: list(self._written().spans()), lambda: self._written().columns()),
            end=self.end,
            step=self.period,
            events=self.events,
            rates=Deferred(lambda: list(self._written().rates())),
        )

    def _written(self) -> "Spans":
        from sim.engine.spans import Spans

        return Spans(self.tracks, self.parts, self.kinds, self.program)


def _in_a_column(track: Track) -> Track:
    times = (track.start, track.end, track.begun, track.arrived)
    start, end, begun, arrived = (time[..., None] for time in times)
    return replace(track, start=start, end=end, begun=begun, arrived=arrived)


def flights_of(steps: Sequence[Step]) -> int:
    """The largest number of transfers in which one of these steps takes part."""
    return max((len(s.transfers) for s in steps if isinstance(s, CommunicateStep)), default=0)
