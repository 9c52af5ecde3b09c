"""The step of a worker alone: a model on a device, run by a stack, layer by layer.

If a worker is a group of GPUs, its step is the program of a job of that size. A `[plan]` lays the
job out (tensor, pipeline, FSDP, expert parallel ...), and its program is folded and played once.
The worker's step takes its time, its account and the memory of its fullest GPU from this play.
Every GPU of the group then holds a piece of the shared weights.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from sim.engine.accounts import accounts, critical_role
from sim.engine.machine import Machine
from sim.engine.play import play
from sim.hardware.device import Device
from sim.hardware.stack import Stack
from sim.jobs.sharing.plan import ServerBased, Sharing
from sim.jobs.sharing.workload import TimedLayer, Workload
from sim.model.block import Block
from sim.model.counts import parameters
from sim.model.kernels import BYTES
from sim.model.model import Model
from sim.parallel.job import Chunk, Job
from sim.parallel.memory import fullest, memories, memory
from sim.parallel.plan import Plan
from sim.parallel.segments import Items
from sim.parallel.step import training_step
from sim.parallel.weight_update import optimizer
from sim.program.causes import OPTIMIZER
from sim.program.operations import Collective, Segment


def free(collective: Collective) -> float:
    """Seconds of a collective of a worker that is alone: zero."""
    return 0.0


def worker_step(
    model: Model,
    batch: int,
    plan: Sharing,
    stack: Stack,
    device: Device,
    collective_time: Callable[[Collective], float] = free,
) -> Workload:
    """The step of one GPU with `batch` samples: the job of a single rank, block by block.

    `collective_time` gives the seconds of a collective inside the passes (synchronised batch norm).
    The wait for the slowest worker before such a collective is not counted, because it shortens the
    wait for gradients by as much.

    >>> from sim.hardware import device, stack
    >>> from sim.model.reading import load
    >>> from sim.jobs.sharing.methods.all_reduce import AllReduce
    >>> v100, ddp = device.load("v100-16gb-sxm"), stack.load("pytorch-ddp")
    >>> step = worker_step(load("resnet50"), 32, AllReduce(), ddp, v100)
    >>> round(step.parameters / 1e6, 1), 0.05 < step.seconds < 0.15
    (25.6, True)
    """
    alone = Plan(
        global_batch=batch,
        microbatch=batch,
        dp=1,
        precision=plan.precision,
        optimizer=plan.optimizer,
    )
    device.peak_rate(plan.precision)  # refuses a precision that the device lacks
    width = float(max(2, BYTES[plan.precision]))
    stored = 0.0
    if isinstance(plan, ServerBased):
        everything, model = model, model.pulled(batch)
        stored = float(parameters(everything))
    model.check(plan.precision, device.name)
    stack = replace(stack, clip=stack.clip and model.clipped)
    whole = Chunk(model.row)
    job = Job(model=model, plan=alone, stack=stack, device=device, chunks=((whole,),))
    footprint = memory(job, training_step(job), 0)
    ahead = [tuple(job.work(kind, "F").flat()) for kind in model.row]
    back = [tuple(job.work(kind, "B").flat()) for kind in model.row]
    parts = [*ahead, *reversed(back), optimizer(job, 0)]
    seconds = list(_played(parts, stack.step_host, collective_time))
    hosted = (item for items in ahead for item in items if isinstance(item, Segment))
    return Workload(
        layers=tuple(_layers(seconds[:-1], tuple(job.blocks(whole)))),
        optimizer=seconds[-1],
        width=width,
        batch=batch,
        inputs=model.inputs,
        outputs=model.outputs(width),
        stored=stored,
        launches=sum(segment.host for segment in hosted),
        launch=stack.launch_backward,
        call=stack.launch_collective,
        held={**footprint.parts, "fragmentation": footprint.fragmented},
        room=device.usable_memory,
    )


def _layers(seconds: Sequence[float], blocks: Sequence[Block]) -> Iterator[TimedLayer]:
    """Yield the blocks with their `seconds`, which list all forward passes, then all backward
    passes in the order in which they run."""
    ahead, back = seconds[: len(blocks)], reversed(seconds[len(blocks) :])
    for forward, backward, block in zip(ahead, back, blocks, strict=True):
        shapes = tuple(shape for group in block.parameters for shape in block.shapes(group))
        yield TimedLayer(
            forward=forward, backward=backward, parameters=block.count, matrices=shapes or None
        )


def _played(
    parts: Iterable[Items], opening: float, collective_time: Callable[[Collective], float]
) -> Iterator[float]:
    """Yield the device's seconds of each part, from the end of the part before it to its own end
    (`sim.program.durations`)."""
    device, host = 0.0, opening
    for items in parts:
        before = device
        for item in items:
            if isinstance(item, Segment):
                device, host = max(device + item.device, host + item.lead), host + item.host
            else:
                device += collective_time(item)
        yield device - before


def matrices(job: Job) -> tuple[tuple[int, int], ...] | None:
    """Rows and columns of all weight matrices, before ranks divide them."""
    whole = Chunk(job.model.row)
    alone = Plan(global_batch=1, microbatch=1, dp=1, precision=job.plan.precision)
    blocks = replace(job, plan=alone, chunks=((whole,),)).blocks(whole)
    shapes = (
        shape for block in blocks for group in block.parameters for shape in block.shapes(group)
    )
    return tuple(shapes) or None


def group_step(job: Job, machine: Machine) -> Workload:
    """Play the step of a job on its own machine, and return it as the step of a worker."""
    program = training_step(job)
    record = play(program, machine)
    spent = dict(accounts(record)[critical_role(record).index].items())
    footprint = fullest(memories(job, program))
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
        held={**footprint.parts, "fragmentation": footprint.fragmented},
        room=job.device.usable_memory,
    )
