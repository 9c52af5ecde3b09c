"""Search for the order of passes that suits the durations of a job's own passes and messages.

Some schedules have an order that depends on times (`Entry.searched`). Such a schedule
is first written in its plain order. The seconds of this program's passes and messages, and the
bytes that passes keep, are the costs of the search.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from sim.engine.fold import Folding
from sim.engine.machine import Machine
from sim.engine.replay.pass_map import HOST, READY
from sim.engine.replay.play import FoldedMachine, durations
from sim.parallel import schedule as schedules
from sim.parallel.job import Job
from sim.parallel.step import training_step
from sim.program.program import Program
from sim.program.schedule import Kind, PassVariant, Schedule

if TYPE_CHECKING:
    from sim.parallel.bubble_filling import Costs, Rows

_ACTIVATIONS = "activations"


def searched(job: Job, machine: Machine, search: "Callable[[Costs, int], Schedule]") -> Job:
    """The job with the order that the `search` of its schedule finds."""
    plan = job.plan
    costs = costs_of(training_step(job), machine.healthy, plan.schedule_memory)
    return replace(job, order=search(costs, plan.microbatches))


def fixed_orders(job: Job) -> Iterator[tuple[str, Program]]:
    """Yield the name and the job's program for each usual schedule with a fixed order and one chunk
    per stage. The searched order is compared with them."""
    assert job.order is not None
    stages, count = job.order.stages, job.plan.microbatches
    for name, entry in schedules.table().items():
        fixed = entry.usual and entry.searched is None and entry.chunks == 1
        if fixed and entry.bubble is not None and entry.takes(stages, count):
            yield name, training_step(job, schedules.schedule(name, stages, count))


def costs_of(program: Program, machine: Machine, memory: float) -> "Costs":
    """The seconds and the kept bytes of a program's passes. The limit of each of p stages is
    `memory` p k bytes, where p k is the memory of 1F1B. Here k is the most bytes that any stage
    keeps of a microbatch
    (sail-sg/zero-bubble-pipeline-parallelism, zb_schedules.py: `zero_bubble_max_pending_backward`).
    """
    from sim.parallel.bubble_filling import Costs

    estimate = FoldedMachine(Folding(program, machine)).estimate(program)
    times, stages = durations([estimate]), program.schedule.stages
    seconds = {
        kind: float(max(times.maps[0, READY, row, 0], times.maps[1, HOST, row, 0]))
        for row, kind in enumerate(estimate.grid.kinds)
    }
    bytes_of = {
        (stage, variant): ops.memory.kept.get(_ACTIVATIONS, 0.0)
        for stage, stage_program in enumerate(program.stages)
        for variant, ops in stage_program.ops_by_variant.items()
    }

    def rows(kind: Kind, values: Mapping[tuple[int, PassVariant], float]) -> "Rows":
        return _rows(program, lambda stage, chunk: _usual(values, stage, chunk, kind))

    kept, freed = rows("F", bytes_of), rows("W", bytes_of)
    most = max(sum(sizes) for sizes in kept)
    return Costs(
        forward=rows("F", seconds),
        inputs=rows("I", seconds),
        weights=rows("W", seconds),
        kept=kept,
        held=tuple(tuple(-size for size in sizes) for sizes in freed),
        limits=(memory * stages * most,) * stages,
        apart=program.apart,
        message=max((traffic.alone for traffic in estimate.messages), default=0.0),
    )


def _rows(program: Program, value: Callable[[int, int], float]) -> "Rows":
    schedule = program.schedule
    return tuple(
        tuple(value(stage, chunk) for chunk in range(schedule.chunks))
        for stage in range(schedule.stages)
    )


def _usual(
    values: Mapping[tuple[int, PassVariant], float], stage: int, chunk: int, kind: Kind
) -> float:
    """The value of a pass of this kind: neither the first nor the last, if there is such a pass."""
    by_ends = {
        (variant.first + variant.last): value
        for (at, variant), value in values.items()
        if (at, variant.chunk, variant.kind) == (stage, chunk, kind)
    }
    return by_ends[min(by_ends)]
