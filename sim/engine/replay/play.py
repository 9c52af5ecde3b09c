"""Play a program without a clock, with the clock's times as long as no transfers contend."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain

import numpy as np

from sim.config.dataclass import dataclass
from sim.engine.costs import Costs, Silent
from sim.engine.fold import Folding
from sim.engine.folded import LinkClass, Traffic
from sim.engine.replay.grid import END, FIRST_SIDE, HOST_FREE, Grid, grid_of
from sim.engine.replay.pass_map import COMPUTED_2, PassMap, pass_map
from sim.engine.replay.pipeline import Durations, Floats, Pipeline
from sim.engine.replay.step_tail import Closing, StageMoments, StepTail, stage_closing
from sim.engine.transfers import RankTransfers
from sim.program.durations import Duration
from sim.program.operations import (
    COMPUTE_STREAM,
    Call,
    Collective,
    Communicate,
    Compute,
    Operation,
    PassOps,
    Recent,
    Segment,
    Send,
    Work,
)
from sim.program.program import Program, Stage


@dataclass(frozen=True, slots=True, eq=False)
class StageMaps:
    """The maps of a stage's passes, their `tables` [variants, outputs, inputs], and their numbers
    of computations."""

    maps: tuple[PassMap, ...]
    tables: Floats
    computations: tuple[int, ...]

    @classmethod
    def of(cls, maps: Iterable[PassMap]) -> "StageMaps":
        """The maps of one stage."""
        listed = tuple(maps)
        tables = np.array([map_.table for map_ in listed])
        return cls(listed, tables, tuple(map_.computations for map_ in listed))


@dataclass(frozen=True, eq=False)
class Estimate:
    """A program on a machine, ready to be evaluated: its grid, and the durations of its passes.

    Every stage is one role, and collectives inside passes run among equal ranks. `stages` has the
    maps of passes. `messages` has the traffic between the neighbours in `Grid.pairs`. `closing` has
    the operations after the passes; `opening` is the time at which stages begin (s).
    """

    program: Program
    grid: Grid
    machine: "FoldedMachine"
    streams: tuple[str, ...]
    stages: tuple[StageMaps, ...]
    messages: tuple[Traffic, ...]
    closing: tuple[StepTail, ...]
    opening: float

    @cached_property
    def maps(self) -> tuple[PassMap, ...]:
        """The map of each kind of pass in the grid."""
        return tuple(map_ for stage in self.stages for map_ in stage.maps)

    @cached_property
    def shape(self) -> tuple[object, ...]:
        """A key that is equal for programs whose passes can be evaluated together."""
        counts = tuple(stage.computations for stage in self.stages)
        return self.grid, self.program.exchange.sync, self.streams, counts

    @cached_property
    def form(self) -> tuple[object, ...]:
        """A key that is equal for programs of one shape whose closings can be played together."""
        return tuple(tail.form for tail in self.closing)

    @property
    def written(self) -> tuple[object, ...]:
        """A key that is equal for programs of one shape whose records differ only in times."""
        tails = tuple(tail.written for tail in self.closing)
        opened = tuple(stage.opening is None for stage in self.program.stages)
        return tails, tuple(map_.form for map_ in self.maps), opened


class FoldedMachine:
    """Prepares programs for evaluation on a folded machine; common parts are computed once.

    The role with the lowest number represents its stage, exactly if the stage has no other role.
    """

    def __init__(
        self, folding: Folding, known: Silent | None = None, desks: Sequence[RankTransfers] = ()
    ) -> None:
        self.folding = folding
        self._silent = Silent() if known is None else known
        self._stage_of = tuple(role.stage for role, _ in folding.roles)
        lowest = {role.stage: (role, index) for role, index in reversed(folding.roles)}
        roles = [lowest[stage] for stage in sorted(lowest)]
        self.desks = desks or tuple(folding.desk.at(index) for _, index in roles)
        self.costs = tuple(
            Costs(desk.links_of(stage), slowdown=role.slowdown, known=self._silent)
            for stage, (desk, (role, _)) in enumerate(zip(self.desks, roles, strict=True))
        )
        # Keys have ids of objects. The values keep the objects alive, so no id is used twice.
        self._maps: dict[tuple[object, ...], tuple[PassOps, PassMap]] = {}
        self._stages: dict[tuple[object, ...], tuple[Stage, StageMaps]] = {}
        self._closing: dict[tuple[int, ...], tuple[object, StepTail]] = {}
        self._sends: dict[tuple[object, ...], list[Send]] = {}

    @property
    def links(self) -> Sequence[LinkClass]:
        """The links of all ranks."""
        return self.folding.desk.links

    def estimate(self, program: Program) -> Estimate:
        """A program, ready to be evaluated."""
        grid = grid_of(program.schedule, program.exchange.style)
        streams = side_streams(program)
        return Estimate(
            program=program,
            grid=grid,
            machine=self,
            streams=streams,
            stages=tuple(
                self._maps_of(s, stage, streams) for s, stage in enumerate(program.stages)
            ),
            messages=self._between(grid.pairs, program),
            closing=tuple(self._closing_of(s, stage) for s, stage in enumerate(program.stages)),
            opening=self._opening(program),
        )

    def _maps_of(self, stage: int, stage_program: Stage, streams: tuple[str, ...]) -> StageMaps:
        """The maps of a stage; stages with equal work and durations share an object."""
        slowdown = self.costs[stage].slowdown
        seconds = self.asked(stage, stage_program.calls_of_passes)
        key = id(stage_program), slowdown, seconds, streams
        if key not in self._stages:
            maps = (
                self._map(stage, ops, slowdown, streams)
                for ops in stage_program.ops_by_variant.values()
            )
            self._stages[key] = stage_program, StageMaps.of(maps)
        return self._stages[key][1]

    def _map(self, stage: int, ops: PassOps, slowdown: float, streams: tuple[str, ...]) -> PassMap:
        key = id(ops), slowdown, self.asked(stage, ops.calls), streams
        if key not in self._maps:
            made = pass_map(ops, self.costs[stage], self.desks[stage], stage, streams)
            self._maps[key] = ops, made
        return self._maps[key][1]

    def asked(self, stage: int, calls: Iterable[Call]) -> tuple[tuple[float, ...], ...]:
        """The seconds on the network, the memory traffic and the SMs of each call of passes."""
        traffic = (self.desks[stage].traffic(call, stage) for call in calls)
        return tuple([(cost.alone, cost.at_once, cost.memory, cost.ctas) for cost in traffic])

    def _closing_of(self, stage: int, stage_program: Stage) -> StepTail:
        last = stage_program.closing, stage_program.beside
        key = stage, *map(id, last)
        if key not in self._closing:
            desk, costs = self.desks[stage], self.costs[stage]
            steps = stage_closing(chain(*last), stage, desk, costs, self._stage_of)
            self._closing[key] = last, steps
        return self._closing[key][1]

    def _between(self, pairs: Sequence[tuple[int, int]], program: Program) -> tuple[Traffic, ...]:
        """The traffic of the largest message between every pair of neighbours."""
        bytes, among = program.exchange.bytes, program.exchange.among
        key = pairs, bytes, among, program.schedule.pieces
        if key not in self._sends:
            sizes = sizes_between(program)
            self._sends[key] = [
                Send(to=there, bytes=max(sizes[here, there]), key="", among=among)
                for here, there in pairs
            ]
        sent = zip(pairs, self._sends[key], strict=True)
        return tuple([self.desks[here].traffic(send, here) for (here, _), send in sent])

    def _opening(self, program: Program) -> float:
        """The time at which stages begin their passes (s)."""
        leads = (
            self.costs[stage].of(stage_program.opening.work).duration.lead
            for stage, stage_program in enumerate(program.stages)
            if stage_program.opening is not None
        )
        return max(leads, default=0.0)


def sizes_between(program: Program) -> Mapping[tuple[int, int], set[float]]:
    """The sizes (bytes) of messages from each stage to each neighbour."""
    sizes: defaultdict[tuple[int, int], set[float]] = defaultdict(set)
    pieces = program.schedule.pieces
    for (here, chunk), (there, other) in program.schedule.borders():
        size = program.exchange.between(pieces[here][chunk], pieces[there][other])
        sizes[here, there].add(size)
        sizes[there, here].add(size)
    return sizes


def unmodelled(program: Program) -> str:
    """The first feature of a program that prevents a replay, or an empty text."""
    stages = dict.fromkeys(program.stages)
    variants = [ops for stage in stages for ops in stage.ops_by_variant.values()]
    passes = (operation for ops in variants for operation in ops)
    closing = (operation for stage in stages for operation in stage.closing)
    reasons = [_opening_obstacle(program), *map(_end_obstacle, variants)]
    reasons += map(_pass_obstacle, passes)
    reasons += map(_closing_obstacle, closing)
    if any(len(sizes) > 1 for sizes in sizes_between(program).values()):
        reasons.append("messages between two stages differ in size")
    if any(not isinstance(call, Collective) for stage in stages for call in stage.calls):
        reasons.append("operations of passes send messages")
    return next(filter(None, reasons), "")


def _opening_obstacle(program: Program) -> str:
    openings = [stage.opening and _durations(stage.opening.work) for stage in program.stages]
    if len(set(openings)) > 1:
        return "stages open in different ways"
    if any(duration.device for opening in openings for duration in opening or ()):
        return "a step opens with work on the device"
    return ""


def _end_obstacle(ops: PassOps) -> str:
    *_, last = (operation for operation in ops if isinstance(operation, Compute))
    return "a pass sends its result before its end" if last.name else ""


def _pass_obstacle(operation: Operation) -> str:
    if operation.sync:
        return "the host waits within a pass"
    if isinstance(operation, Communicate) and operation.stream == COMPUTE_STREAM:
        return "an operation of a pass only communicates on the compute stream"
    return ""


def _closing_obstacle(operation: Operation) -> str:
    if any(isinstance(cause, Recent) for cause in operation.after):
        return "the end of the step waits for a certain pass"
    if operation.sync and operation.stream != COMPUTE_STREAM:
        return "the host waits for another stream"
    return ""


def _durations(work: Work) -> tuple[Duration, ...]:
    return tuple(segment.duration for segment in work.flat() if isinstance(segment, Segment))


def side_streams(program: Program) -> tuple[str, ...]:
    """The streams of passes beside the compute stream."""
    streams: set[str] = set()
    for stage in dict.fromkeys(program.stages):
        streams |= stage.streams_of_passes
    return tuple(sorted(streams - {COMPUTE_STREAM}))


@dataclass(frozen=True, eq=False)
class Played:
    """Played programs of one shape: the moments of their pipelines, their closings, their ends."""

    pipeline: Pipeline
    moments: Floats
    closing: Closing
    end: Floats


def play(estimates: Sequence[Estimate]) -> Played:
    """Play programs of one shape; each is a column of the arrays."""
    pipeline = pipeline_of(estimates[0])
    moments = pipeline.times(durations(estimates))
    closing = closing_of(estimates, moments[:, pipeline.grid.ends])
    return Played(pipeline, moments, closing, closing.play())


def pipeline_of(estimate: Estimate) -> Pipeline:
    """The pipeline of programs of one shape."""
    computations = tuple(count for stage in estimate.stages for count in stage.computations)
    # The host only waits for exchanges that block the compute stream.
    sync = estimate.program.exchange.sync and estimate.grid.blocking
    return Pipeline(estimate.grid, sync=sync, computations=computations)


def closing_of(estimates: Sequence[Estimate], ends: Floats) -> Closing:
    """The closing operations after passes that end at `ends` [moments, stages, layouts]."""
    first = estimates[0]
    stages = [
        StageMoments(
            host=stage_end[HOST_FREE],
            free={
                COMPUTE_STREAM: stage_end[END],
                **{stream: stage_end[FIRST_SIDE + n] for n, stream in enumerate(first.streams)},
            },
        )
        for stage_end in ends.swapaxes(0, 1)
    ]
    return Closing([estimate.closing for estimate in estimates], stages)


def durations(estimates: Sequence[Estimate]) -> Durations:
    """The durations of programs of one shape; each is a column of the arrays."""
    distinct = dict.fromkeys(tuple(map(id, e.stages)) for e in estimates)
    given = estimates if len(distinct) > 1 else estimates[:1]
    maps = np.stack([np.concatenate([stage.tables for stage in e.stages]) for e in given], axis=-1)
    maps = maps.transpose(1, 2, 0, 3)
    asks_before_last = bool((maps[:-1, COMPUTED_2] > -np.inf).any())
    return Durations(
        maps=maps if asks_before_last else maps[:-1],
        messages=np.array([[message.alone for message in e.messages] for e in estimates]).T,
        opening=np.array([estimate.opening for estimate in estimates]),
    )
