"""Work beside a step: reading the next samples, writing a checkpoint, evaluation.

This work is described by ordinary operations on streams of their own, so every reader of a program
(the clock, the replay, folding, accounts, pictures) reads it, too. The work begins with the step,
and the step ends only when the work has ended. If the work takes longer than the passes, all ranks
wait for it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sim.config.errors import InputError
from sim.program.operations import COMPUTE_STREAM, Compute, Operation, PassOps, Work
from sim.program.program import Program, Stage
from sim.program.schedule import Action, Schedule

ByStage = Mapping[int, Sequence[Operation]]


def beside(program: Program, work: ByStage, where: str = "program") -> Program:
    """Return the program with further work of its stages. Work on the compute stream runs after the
    step, work on other streams beside the step. Raises `InputError` if steps overlap: then no step
    has an end that could wait for the work."""
    if not any(work.values()):
        return program
    if not program.ends:
        fault = "has work beside its steps, but its pipeline does not drain between them"
        raise InputError(where, fault, "take another schedule, or leave the loader out")
    made: dict[tuple[int, Sequence[Operation]], Stage] = {}
    for number, stage in enumerate(program.stages):
        key = id(stage), tuple(work.get(number, ()))
        if key not in made:
            made[key] = _with(stage, key[1])
    keys = ((id(stage), tuple(work.get(n, ()))) for n, stage in enumerate(program.stages))
    return replace(program, stages=tuple(made[key] for key in keys))


def _with(stage: Stage, work: Sequence[Operation]) -> Stage:
    behind = [operation for operation in work if operation.stream == COMPUTE_STREAM]
    others = [operation for operation in work if operation.stream != COMPUTE_STREAM]
    return replace(
        stage,
        closing=PassOps((*stage.closing, *behind)),
        beside=PassOps((*stage.beside, *others)),
    )


def alone(program: Program, work: ByStage) -> Program:
    """Return a program in which the ranks of a given program do only this work."""
    count = len(program.stages)
    orders = ((Action("F", 0),),) * count
    schedule = Schedule(orders, tuple((n,) for n in range(count)), "alone")
    nothing = PassOps((Compute(name="", work=Work(name="nothing", items=())),))
    stages = tuple(
        Stage(ops_by_variant={variant: nothing})
        for of in schedule.actions
        for variant in of.variants
    )
    return beside(Program(mesh=program.mesh, schedule=schedule, stages=stages), work)
