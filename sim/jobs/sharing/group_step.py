"""A worker that is a group of GPUs: its step is the program of a whole job of that size.

The job is laid out as a `[plan]` says (tensor, pipeline, FSDP, expert parallel ...), written as any
other program, folded and played once; the time, its account and the memory of its fullest GPU are
those of the worker's step. Every GPU of it then holds a piece of what is shared.
"""

from dataclasses import replace

from sim.engine.accounts import accounts, critical_role
from sim.engine.machine import Machine
from sim.engine.play import play
from sim.jobs.sharing.workload import TimedLayer, Workload
from sim.model.counts import parameters
from sim.model.kernels import BYTES
from sim.parallel.job import Chunk, Job
from sim.parallel.memory import fullest, memories
from sim.parallel.plan import Plan
from sim.parallel.step import training_step
from sim.program.causes import OPTIMIZER


def matrices(job: Job) -> tuple[tuple[int, int], ...] | None:
    """Rows and columns of all weights that are matrices, whatever ranks hold which part of them."""
    whole = Chunk(job.model.row)
    alone = Plan(global_batch=1, microbatch=1, dp=1, precision=job.plan.precision)
    blocks = replace(job, plan=alone, chunks=((whole,),)).blocks(whole)
    shapes = (
        shape for block in blocks for group in block.parameters for shape in block.shapes(group)
    )
    return tuple(shapes) or None


def group_step(job: Job, machine: Machine) -> Workload:
    """The step of a job on a machine of its own, as one worker's."""
    program = training_step(job)
    record = play(program, machine)
    spent = dict(accounts(record)[critical_role(record).index].items())
    own = fullest(memories(job, program))
    optimizer = spent.get(OPTIMIZER, 0.0)
    passes = record.step_time - optimizer
    layer = TimedLayer(
        forward=passes / 3.0,
        backward=passes * 2.0 / 3.0,
        parameters=parameters(job.model),
        matrices=matrices(job),
    )
    return Workload(
        layers=(layer,),
        optimizer=optimizer,
        width=float(max(2, BYTES[job.plan.precision])),
        batch=job.plan.global_batch,
        launch=job.stack.launch_backward,
        call=job.stack.launch_collective,
        in_pieces=True,
        spent={str(cause): seconds for cause, seconds in spent.items()},
        held={**own.parts, "fragmentation": own.fragmented},
        room=job.device.usable_memory,
    )
