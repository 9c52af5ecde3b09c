"""The step times of many jobs without a clock, as if every transfer were alone on its links.

A job's program is the program that the clock would play. Programs of one shape are columns of one
evaluation. A pipeline of many microbatches is evaluated as a short pipeline with a repeated part.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from sim.config.dataclass import dataclass
from sim.config.grouped import grouped
from sim.engine.fold import Folding
from sim.engine.machine import Machine
from sim.engine.play import play
from sim.engine.replay.pipeline import Floats
from sim.engine.replay.play import Estimate, FoldedMachine, closing_of, durations, pipeline_of
from sim.engine.replay.steady import Repeating, repeating
from sim.parallel import schedule as schedules
from sim.parallel.job import Job
from sim.parallel.step import training_step
from sim.program.program import Program
from sim.program.schedule import Schedule

_NUMBERS = 4_000_000  # floats (points in time, and seconds by cause) that are evaluated at once
# Microbatches per stage after which a pipeline should be in a steady state, tried in turn.
_STEADY = (3,)


@dataclass(frozen=True, slots=True, eq=False)
class Pipelining:
    """The order of a job's passes: a schedule, and how often its steady part is repeated."""

    schedule: Schedule
    steady: Repeating | None = None
    repeats: int = 0


def pipelining(job: Job, effort: int = 0) -> Pipelining:
    """Return the short form of a job's schedule. A higher effort gives a longer form; the highest
    effort gives the whole schedule."""
    plan, name = job.plan, job.plan.pipeline
    if job.order is not None:
        return Pipelining(job.order)
    whole = plan.versions(0) or plan.overlap_experts is not None or plan.drains > 1
    repeats_itself = plan.pp > 1 and not whole
    if repeats_itself and effort < len(_STEADY) and not schedules.is_file(name):
        group = schedules.entry(name).group(plan.pp)
        chunks, count = plan.chunks, plan.microbatches
        short = _short(name, plan.pp, chunks, count % group, _STEADY[effort] * plan.pp)
        if short is not None and 3 * short.microbatches < 2 * count:
            repeats = (count - short.microbatches) // short.group
            return Pipelining(short.schedule, short, repeats)
    return Pipelining(plan.passes())


@lru_cache(maxsize=1024)
def _short(name: str, stages: int, chunks: int, rest: int, least: int) -> Repeating | None:
    entry = schedules.entry(name)
    return repeating(
        lambda count: schedules.made(name, stages, count, chunks),
        stages,
        rest,
        entry.group(stages),
        least=max(least, entry.least(stages)),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A job that is ready to be evaluated, with its order of passes and the program of this order.
    The fullest rank needs `memory` bytes, with the allocator's fragments."""

    job: Job
    machine: Machine
    order: Pipelining
    program: Program
    memory: float = 0.0

    @classmethod
    def of(cls, job: Job, machine: Machine, effort: int = 0) -> "Candidate":
        """Return a candidate whose memory is not known."""
        order = pipelining(job, effort)
        return cls(job, machine, order, training_step(job, order.schedule))


class Evaluator:
    """Evaluates jobs and keeps the machines that they share."""

    def __init__(self) -> None:
        self._machines: dict[tuple[object, ...], tuple[Machine, FoldedMachine]] = {}

    def times(self, candidates: Sequence[Candidate]) -> Floats:
        """Return the step time (s) of every candidate."""
        times = np.full(len(candidates), np.nan)
        self._evaluate(dict(enumerate(candidates)), times)
        left = dict(enumerate(candidates))
        for effort in range(1, len(_STEADY) + 1):
            left = {
                number: Candidate.of(left[number].job, left[number].machine, effort)
                for number in np.flatnonzero(np.isnan(times)).tolist()
            }
            self._evaluate(left, times)
        return times

    def _evaluate(self, candidates: Mapping[int, Candidate], times: Floats) -> None:
        """Write the candidates' times into `times` by number; NaN for an unsteady pipeline."""
        shapes: dict[tuple[object, ...], list[tuple[int, Estimate, Pipelining]]]
        shapes = defaultdict(list)
        for number, candidate in candidates.items():
            if not candidate.program.ends:  # stages end their steps at different times
                times[number] = play(_whole(candidate), candidate.machine).step_time
                continue
            estimate = self.machine(candidate.program, candidate.machine).estimate(
                candidate.program
            )
            shapes[candidate.order.steady, estimate.shape].append(
                (number, estimate, candidate.order)
            )
        for columns in shapes.values():
            most = max(_NUMBERS // (20 * columns[0][1].grid.size), 1)
            for first in range(0, len(columns), most):
                numbers, estimates, orders = zip(*columns[first : first + most], strict=True)
                times[list(numbers)] = _seconds(estimates, orders)

    def machine(self, program: Program, machine: Machine) -> FoldedMachine:
        """Return a machine, folded for programs of this mesh."""
        scopes = frozenset().union(*(stage.scopes for stage in dict.fromkeys(program.stages)))
        key = id(machine), tuple(program.mesh.items()), program.schedule.pieces, scopes
        if key not in self._machines:
            self._machines[key] = machine, FoldedMachine(Folding(program, machine))
        return self._machines[key][1]


def _whole(candidate: Candidate) -> Program:
    """Return a candidate's program with all microbatches."""
    return candidate.program if candidate.order.steady is None else training_step(candidate.job)


def _seconds(estimates: Sequence[Estimate], orders: Sequence[Pipelining]) -> Floats:
    """Return the step times of programs of one shape."""
    pipeline, lasting = pipeline_of(estimates[0]), durations(estimates)
    steady, count = orders[0].steady, len(estimates)
    sound: NDArray[np.bool_] = np.ones(count, dtype=bool)
    if steady is None:
        ends = pipeline.times(lasting)[:, pipeline.grid.ends]
    else:
        repeats = np.array([float(order.repeats) for order in orders])
        ends, sound = steady.ends(pipeline, lasting, repeats)
    forms = grouped((estimate.form, column) for column, estimate in enumerate(estimates))
    seconds = np.full(count, np.nan)
    for columns in forms.values():
        together = [estimates[column] for column in columns]
        seconds[columns] = closing_of(together, ends[:, :, columns]).play()
    return np.where(sound, seconds, np.nan)
