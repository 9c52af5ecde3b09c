"""The end of a step without a clock: sum gradients, take their norm, update and share weights.

A few operations of each stage follow the passes. In some of them stages meet. The operations are
played in order, for many layouts at once: every moment is an array [layouts].
"""

from collections.abc import Iterable, Sequence
from dataclasses import field
from functools import cached_property

import numpy as np

from sim.config.dataclass import dataclass
from sim.engine.costs import Costs, Parts
from sim.engine.folded import Traffic
from sim.engine.replay.pipeline import Floats
from sim.engine.transfers import RankTransfers
from sim.program.operations import COMPUTE_STREAM, Collective, Communicate, Drained, Operation


@dataclass(frozen=True, slots=True, eq=False)
class TailStep:
    """An operation of one stage with its durations.

    `members` are the stages that meet at each of its transfers. `numbers` are device, host, lead
    and wait of a computation, or the seconds of each transfer. Layouts differ only in `numbers`.
    """

    operation: Operation
    members: tuple[tuple[int, ...], ...]
    numbers: tuple[float, ...]
    parts: Parts | None = None
    traffic: tuple[tuple[Collective, Traffic], ...] = ()

    @property
    def form(self) -> tuple[object, ...]:
        """A key that is equal for layouts that are evaluated together."""
        operation = self.operation
        return (
            operation.name,
            operation.stream,
            operation.after,
            operation.sync,
            self.members,
            self.parts is None,
        )


@dataclass(frozen=True, eq=False)
class StepTail:
    """The closing steps of one stage; `form` is equal for layouts that can be played together."""

    steps: tuple[TailStep, ...]

    @cached_property
    def form(self) -> tuple[object, ...]:
        return tuple(step.form for step in self.steps)

    @cached_property
    def written(self) -> tuple[object, ...]:
        """A key that is equal for layouts that can be played and written to records together."""
        calls = (call for step in self.steps for call, _ in step.traffic)
        return self.form, tuple((call.cause, call.kind) for call in calls)

    @cached_property
    def numbers(self) -> Floats:
        """The `numbers` of all steps, one after another."""
        return np.array([number for step in self.steps for number in step.numbers])


def stage_closing(
    closing: Iterable[Operation],
    stage: int,
    desk: RankTransfers,
    costs: Costs,
    stage_of: Sequence[int],
) -> StepTail:
    """The operations that end a stage's step; `stage_of` has the stage of each role."""
    steps = []
    for operation in closing:
        if isinstance(operation, Communicate):
            calls = [
                (call, g)
                for call in operation.calls
                if isinstance(call, Collective) and (g := desk.group(call, stage)) is not None
            ]
            traffic = tuple((call, desk.traffic(call, stage)) for call, _ in calls)
            members = tuple(
                tuple(sorted({stage_of[role] for role in desk.roles(g)})) for _, g in calls
            )
            numbers = tuple(call_traffic.alone for _, call_traffic in traffic)
            steps.append(TailStep(operation, members, numbers, traffic=traffic))
        else:
            cost = costs.of(operation.work)
            steps.append(TailStep(operation, (), tuple(cost.duration), cost.parts))
    return StepTail(tuple(steps))


@dataclass(slots=True)
class StageMoments:
    """When the host and the streams of a stage are free, and when operations ended [layouts]."""

    host: Floats
    free: dict[str, Floats]
    ended: dict[str, Floats] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClosingSpan:
    """When an operation was ready, when its last transfer began, and when it ended."""

    start: Floats
    begun: Floats
    end: Floats


class Closing:
    """Plays the closing steps of all stages, for several layouts of equal form at once."""

    def __init__(
        self, layouts: Sequence[Sequence[StepTail]], moments: Sequence[StageMoments]
    ) -> None:
        self.steps = [tail.steps for tail in layouts[0]]
        self.numbers = [_in_columns(column) for column in zip(*layouts, strict=True)]
        self.moments, steps = moments, self.steps
        self.spans: list[list[ClosingSpan]] = [[] for _ in steps]
        self._joined: dict[tuple[object, ...], dict[int, Floats]] = {}
        self._moves = 0

    def play(self) -> Floats:
        """Play all closing steps and return when the step ends [layouts]."""
        waiting, before = list(range(len(self.steps))), -1
        while waiting:
            if self._moves == before:
                raise AssertionError("stages wait for each other at the end of a step")
            before = self._moves
            waiting = [stage for stage in waiting if not self._advance(stage)]
        ends = [free for moment in self.moments for free in moment.free.values()]
        end: Floats = np.maximum.reduce(ends)
        return end

    def _advance(self, stage: int) -> bool:
        """Play a stage's steps until one waits for another stage; return whether all are played."""
        for number in range(len(self.spans[stage]), len(self.steps[stage])):
            step = self.steps[stage][number]
            if step.parts is not None:
                self._compute(stage, step, self.numbers[stage][number])
            elif not self._communicate(stage, step, self.numbers[stage][number]):
                return False
            self._moves += 1
        return True

    def _compute(self, stage: int, step: TailStep, numbers: Floats) -> None:
        moment, (device, host, lead, wait) = self.moments[stage], numbers
        ready = self._ready(moment, step.operation)
        end = np.maximum(ready + device, moment.host + lead)
        free = np.maximum(ready + wait, moment.host + host)
        moment.host = end if step.operation.sync else free
        self._ended(stage, step, ClosingSpan(ready, ready, end))

    def _communicate(self, stage: int, step: TailStep, numbers: Floats) -> bool:
        """Play a communication; return False if another stage has not joined it yet."""
        moment, operation = self.moments[stage], step.operation
        ready = self._ready(moment, operation)
        come = np.maximum(ready, moment.host) if operation.stream == COMPUTE_STREAM else ready
        begun = end = come
        for place, members in enumerate(step.members):
            joined = self._joined.setdefault((operation.name, place, members), {})
            self._moves += stage not in joined
            joined[stage] = come
            if len(joined) < len(members):
                return False
            begun = np.maximum.reduce([joined[member] for member in members])
            end = np.maximum(end, begun + numbers[place])
        if operation.sync:
            moment.host = np.maximum(moment.host, end)
        self._ended(stage, step, ClosingSpan(ready, begun, end))
        return True

    def _ready(self, stage_moments: StageMoments, operation: Operation) -> Floats:
        ready = stage_moments.free.get(operation.stream, np.zeros_like(stage_moments.host))
        for cause in operation.after:
            moments = stage_moments.free if isinstance(cause, Drained) else stage_moments.ended
            name = cause.stream if isinstance(cause, Drained) else str(cause)
            ready = np.maximum(ready, moments.get(name, ready))
        return ready

    def _ended(self, stage: int, step: TailStep, span: ClosingSpan) -> None:
        moment, operation = self.moments[stage], step.operation
        moment.free[operation.stream] = moment.ended[operation.name] = span.end
        self.spans[stage].append(span)


def _in_columns(layouts: Sequence[StepTail]) -> list[Floats]:
    """The numbers of each of a stage's steps in several layouts [numbers, layouts]."""
    table = np.stack([layout.numbers for layout in layouts], axis=-1)
    bounds = np.cumsum([len(step.numbers) for step in layouts[0].steps])[:-1]
    return np.split(table, bounds)
