"""Play a program without a clock: what `sim.engine.clock` plays, wherever no transfers contend."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sim.engine.costs import Costs
from sim.engine.fold import Folding
from sim.engine.folded import Traffic
from sim.engine.maxplus.closing import Closing, ClosingStep, StageMoments, closing_steps, stacked
from sim.engine.maxplus.grid import END, HOST_FREE, Grid, grid_of
from sim.engine.maxplus.pipeline import FIRST_SIDE_MOMENT, Durations, Floats, Pipeline
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
        """Of every kind of node the map of its routine."""
        stages = self.program.stages
        return [
            routine_map(
                stages[stage].routines[occasion],
                self.costs[stage],
                self.desks[stage],
                stage,
                self.streams,
            )
            for stage, occasion in self.grid.kinds
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
    pipeline = Pipeline(first.grid, sync=first.program.exchange.sync)
    own = durations(estimates)
    moments = pipeline.times(own)
    stages = [
        StageMoments(
            host=moments[HOST_FREE, node],
            free={
                COMPUTE_STREAM: moments[END, node],
                **{s: moments[FIRST_SIDE_MOMENT + n, node] for n, s in enumerate(first.streams)},
            },
        )
        for node in first.grid.ends.tolist()
    ]
    columns = zip(*(estimate.closing for estimate in estimates), strict=True)
    closing = Closing(first.closing, [stacked(column) for column in columns], stages)
    return Played(pipeline, own, moments, closing, closing.play())


def durations(estimates: Sequence[Estimate]) -> Durations:
    """The durations of programs of one grid, a column each."""
    grid, layouts = estimates[0].grid, len(estimates)
    tables: dict[tuple[int, int], Floats] = {}
    host = np.empty((len(grid.kinds), layouts))
    computations = np.zeros(len(grid.kinds), dtype=np.int64)
    for column, estimate in enumerate(estimates):
        for row, own in enumerate(estimate.maps):
            host[row, column] = own.host
            computations[row] = own.computations
            for output, form in enumerate((own.end, own.before_last, *own.sides)):
                for given, lag in enumerate(form):
                    if lag > -np.inf:
                        if (output, given) not in tables:
                            tables[output, given] = np.full(host.shape, -np.inf)
                        tables[output, given][row, column] = lag
    return Durations(
        maps=_needed(tables),
        host=host,
        messages=np.array([[own.alone for own in e.messages] for e in estimates]).T,
        opening=np.array([estimate.opening for estimate in estimates]),
        computations=computations,
        sides=len(estimates[0].streams),
    )


def _needed(tables: dict[tuple[int, int], Floats]) -> dict[tuple[int, int], Floats]:
    """Without the last but one computation where nothing waits for it."""
    asked = any(given == COMPUTED_2 and output != 1 for output, given in tables)
    return tables if asked else {key: table for key, table in tables.items() if key[0] != 1}
