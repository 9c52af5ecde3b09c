"""The record of a run: when every step of every stream ran, in arrays.

Accounts are read off the arrays; spans and rates are written down only if somebody looks
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
from sim.engine.tracks import COMMUNICATION, Floats, Indices, Runs, Track, of_columns
from sim.program.causes import Cause
from sim.program.operations import COMPUTE_STREAM

if TYPE_CHECKING:
    from sim.engine.spans import Spans


@dataclass(frozen=True, eq=False, kw_only=True)
class Record:
    """All tracks of one run; `program` gives their steps when they are wanted.

    `parts` holds the distinct splits of computations by cause, `kinds` the (cause, kind) of
    transfers. `passes_end` is when the last pass ended, `engine` what played it, and `because` why.
    Where stages end steps apart (`Program.apart`), a step takes the `period` and not until `end`;
    so it does where pipelines do not drain, of what was played of the same without its last steps
    (`base`) and of how many there are `more` here.

    What played without a clock knows two things without its steps: by `moments` when operations of
    a stage began and ended, given the places of their passes in its order and their numbers there
    (`sim.program.memory_levels.in_order`), and what links have `carried`: bytes that
    kept them busy, and those without what protocols add.
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
        """The record of one of some runs without a clock."""
        return cls(
            roles=runs.roles,
            tracks=tuple(of_columns(track, column) for track in runs.tracks),
            parts=[
                {
                    cause: float(np.broadcast_to(own, runs.end.shape)[column])
                    for cause, own in part.items()
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
        """The run as the only column."""
        return Runs(
            roles=self.roles,
            tracks=tuple(_in_a_column(track) for track in self.tracks),
            parts=self.parts,
            kinds=self.kinds,
            end=np.array([self.end]),
            passes_end=np.array([self.passes_end]),
            step=np.array([self.step_time]),
        )

    def repeated_apart(self, opened: Sequence[bool]) -> "Record":
        """The same run of stages that end apart; `opened` says which stages open a step by work."""
        spans = (self._span(role, opened[role.stage]) for role in self.roles)
        return replace(self, period=max(spans))

    def beyond(self, base: "Record", more: int) -> "Record":
        """The same run with the time that each of so many further steps takes beyond a base."""
        return replace(self, period=(self.end - base.end) / more, base=base, more=more)

    def _span(self, role: Role, opened: bool) -> float:
        """From the beginning of a role's first pass, what opens the step before it, to its end."""
        tracks = [track for track in self.tracks if track.role == role.index and len(track.end)]
        end = max((float(track.end[-1]) for track in tracks), default=0.0)
        compute = next((track for track in tracks if track.stream == COMPUTE_STREAM), None)
        if compute is None:
            return end
        passes = np.flatnonzero(compute.parts != COMMUNICATION)[int(opened) :]
        opening = float(compute.end[0]) if opened else 0.0
        return end - float(compute.start[passes[0]]) + opening if len(passes) else end

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
    """The most transfers that one of these steps takes part in."""
    return max((len(s.transfers) for s in steps if isinstance(s, CommunicateStep)), default=0)
