"""Play a program without a clock: what `sim.engine.clock` plays, wherever no transfers contend."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sim.engine.costs import Costs
from sim.engine.fold import Folding
from sim.engine.folded import Traffic
from sim.engine.maxplus.closing import Closing, ClosingStep, StageMoments, closing_steps, stacked
from sim.engine.maxplus.grid import END, FIRST_SIDE, HOST_FREE, Grid, grid_of
from sim.engine.maxplus.pipeline import Durations, Floats, Pipeline
from sim.engine.maxplus.routine import COMPUTED_2, RoutineMap, routine_map
from sim.engine.transfers import Desk
from sim.program.operations import COMPUTE_STREAM, Send
from sim.program.program import Program


@dataclass(frozen=True, eq=False)
class Estimate:
    """A program on a machine, ready to be evaluated: its grid, and what its passes take.

    Every stage is one role, and collectives inside passes run among equals.
    """

    program: Program
    grid: Grid
    desks: tuple[Desk, ...]
    costs: tuple[Costs, ...]
    streams: tuple[str, ...]

    @classmethod
    def of(cls, program: Program, folding: Folding) -> "Estimate":
        """What a folded machine makes of a program."""
        desks = tuple(folding.desk.at(index) for _, index in folding.roles)
        costs = tuple(
            Costs(desk.links_of(stage), slowdown=role.slowdown, interference=desk.interference)
            for stage, (desk, (role, _)) in enumerate(zip(desks, folding.roles, strict=True))
        )
        grid = grid_of(program.schedule, program.exchange.style)
        return cls(program, grid, desks, costs, side_streams(program))

    @cached_property
    def maps(self) -> list[RoutineMap]:
        """Of every kind of node the map of its routine; equal ones are one object."""
        made: dict[tuple[object, ...], RoutineMap] = {}
        maps = []
        for stage, occasion in self.grid.kinds:
            routine = self.program.stages[stage].routines[occasion]
            costs, desk = self.costs[stage], self.desks[stage]
            key = id(routine), costs.slowdown, self._seconds[stage]
            if key not in made:
                made[key] = routine_map(routine, costs, desk, stage, self.streams)
            maps.append(made[key])
        return maps

    @cached_property
    def _seconds(self) -> list[tuple[float, ...]]:
        """Per stage how long the calls of its passes take."""
        return [
            tuple(desk.traffic(call, stage).alone for call in own.calls_of_passes)
            for stage, (own, desk) in enumerate(zip(self.program.stages, self.desks, strict=True))
        ]

    @cached_property
    def messages(self) -> list[Traffic]:
        """What passes between every pair of neighbours."""
        size = self.program.exchange.bytes
        return [
            self.desks[here].traffic(Send(to=there, bytes=size, key=""), here)
            for here, there in self.grid.pairs
        ]

    @cached_property
    def opening(self) -> float:
        """When stages begin their passes."""
        leads = (
            self.costs[stage].of(operation.work).duration.lead
            for stage, own in enumerate(self.program.stages)
            for operation in own.opening
        )
        return max(leads, default=0.0)

    @cached_property
    def closing(self) -> list[tuple[ClosingStep, ...]]:
        """What follows the passes of every stage."""
        own = zip(self.desks, self.costs, strict=True)
        return [closing_steps(self.program, s, desk, cost) for s, (desk, cost) in enumerate(own)]


def side_streams(program: Program) -> tuple[str, ...]:
    """The streams of passes beside the compute stream."""
    streams = (
        operation.stream
        for stage in program.stages
        for routine in stage.routines.values()
        for operation in routine
    )
    return tuple(sorted({stream for stream in streams if stream != COMPUTE_STREAM}))


@dataclass(frozen=True, eq=False)
class Played:
    """Programs of one grid, played: all moments of their pipelines, their closings, their ends."""

    pipeline: Pipeline
    durations: Durations
    moments: Floats
    closing: Closing
    end: Floats


def play(estimates: Sequence[Estimate]) -> Played:
    """Play programs that have a grid in common, a column each."""
    first = estimates[0]
    computations = tuple(own.computations for own in first.maps)
    pipeline = Pipeline(
        first.grid, sync=first.program.exchange.sync, computations=computations
    )
    own = durations(estimates)
    moments = pipeline.times(own)
    stages = [
        StageMoments(
            host=moments[HOST_FREE, node],
            free={
                COMPUTE_STREAM: moments[END, node],
                **{s: moments[FIRST_SIDE + n, node] for n, s in enumerate(first.streams)},
            },
        )
        for node in first.grid.ends.tolist()
    ]
    columns = zip(*(estimate.closing for estimate in estimates), strict=True)
    closing = Closing(first.closing, [stacked(column) for column in columns], stages)
    return Played(pipeline, own, moments, closing, closing.play())


def durations(estimates: Sequence[Estimate]) -> Durations:
    """The durations of programs of one grid, a column each."""
    maps = np.array([[own.table for own in e.maps] for e in estimates]).transpose(2, 3, 1, 0)
    asks_before_last = bool((maps[:-1, COMPUTED_2] > -np.inf).any())
    return Durations(
        maps=maps if asks_before_last else maps[:-1],
        host=np.array([[own.host for own in e.maps] for e in estimates]).T,
        messages=np.array([[own.alone for own in e.messages] for e in estimates]).T,
        opening=np.array([estimate.opening for estimate in estimates]),
    )
