"""A worker's step by itself: a model on one device, by one stack, layer by layer."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from sim.config import catalog
from sim.hardware.device import Device
from sim.hardware.kernels.time import kernel_time
from sim.hardware.stack import Stack
from sim.model.convolution import Convolutional, operators
from sim.model.kernels import BYTES, Kernel
from sim.model.optimizer import optimizer_work
from sim.model.transformer import Transformer
from sim.parallel.job import Chunk, Job
from sim.parallel.plan import Plan
from sim.parallel.segments import Items, segments
from sim.parallel.step import optimizer
from sim.program.causes import COMPUTE
from sim.program.operations import Collective, Segment
from sim.sharing.plan import Sharing
from sim.sharing.workload import TimedLayer, Workload

Model = Transformer | Convolutional
_LAUNCHES_OF_SGD = 2


def read_model(document: dict[str, Any], place: str) -> Model:
    """A transformer or a convolutional network, as the document's `kind` says."""
    if document.get("kind") == "convolutional":
        return catalog.validate(document, Convolutional, place)
    return catalog.validate(document, Transformer, place)


def free(collective: Collective) -> float:
    """A collective that costs nothing: a worker by itself."""
    return 0.0


def worker_step(
    model: Model,
    batch: int,
    plan: Sharing,
    stack: Stack,
    device: Device,
    collective_time: Callable[[Collective], float] = free,
) -> Workload:
    """The step of one GPU with `batch` samples.

    `collective_time` is that of a collective inside the passes (synchronised batch norm). That
    everybody waits there for the slowest is not counted: they wait that much less at the gradients.

    >>> from sim.hardware import device, stack
    >>> from sim.model.convolution import load
    >>> from sim.sharing.methods.all_reduce import AllReduce
    >>> v100, ddp = device.load("v100-16gb-sxm"), stack.load("pytorch-ddp")
    >>> step = worker_step(load("resnet50"), 32, AllReduce(), ddp, v100)
    >>> round(step.parameters / 1e6, 1), 0.05 < step.seconds < 0.15
    (25.6, True)
    """
    if isinstance(model, Convolutional):
        return _convolutional(model, batch, plan, stack, device, collective_time)
    return _transformer(model, batch, plan, stack, device)


def _transformer(
    model: Transformer, batch: int, plan: Sharing, stack: Stack, device: Device
) -> Workload:
    alone = Plan(
        global_batch=batch,
        microbatch=batch,
        dp=1,
        precision=plan.precision,
        optimizer=plan.optimizer,
    )
    whole = Chunk(model.row)
    job = Job(model=model, plan=alone, stack=stack, device=device, chunks=((whole,),))
    ahead = [tuple(job.work(kind, "F").flat()) for kind in model.row]
    back = [tuple(job.work(kind, "B").flat()) for kind in model.row]
    counts = [block.count for block in job.blocks(whole)]
    last = optimizer(job, 0)
    return _workload(ahead, back, counts, last, stack=stack, plan=plan, batch=batch, inputs=0.0)


def _convolutional(
    model: Convolutional,
    batch: int,
    plan: Sharing,
    stack: Stack,
    device: Device,
    collective_time: Callable[[Collective], float],
) -> Workload:
    def time(kernel: Kernel) -> float:
        return kernel_time(kernel, device)

    works = operators(model, microbatch=batch, precision=plan.precision, fused=stack.fusion.norm)
    ahead = [_items(work.forward, time, stack.launch_forward) for work in works]
    back = [_items(work.backward, time, stack.launch_backward) for work in works]
    update = optimizer_work(
        parameters=float(model.parameters),
        optimizer=plan.optimizer,
        precision=plan.precision,
        gradients="grad",
        fused=stack.fused_optimizer,
        clip=False,
        tensors=len(works) * _LAUNCHES_OF_SGD,
    )
    counts = [work.parameters for work in works]
    pixels = float(model.channels * model.image**2)
    return _workload(
        ahead, back, counts, _items(update, time, stack.optimizer_launch),
        stack=stack, plan=plan, batch=batch, inputs=4.0 * pixels,
        python=stack.layer_forward * len(works), collective_time=collective_time,
    )  # fmt: skip


def _items(kernels: Iterable[Any], time: Callable[[Kernel], float], launch: float) -> Items:
    return segments(kernels, name="pass", cause=COMPUTE, time=time, launch=launch)


def _workload(
    ahead: Sequence[Items],
    back: Sequence[Items],
    counts: Sequence[float],
    last: Items,
    *,
    stack: Stack,
    plan: Sharing,
    batch: int,
    inputs: float,
    python: float = 0.0,
    collective_time: Callable[[Collective], float] = free,
) -> Workload:
    """Play all parts in order, the host ahead of the device, and read each one's seconds."""
    seconds = list(_played([*ahead, *reversed(back), last], stack.step_host, collective_time))
    n = len(counts)
    layers = [
        TimedLayer(
            forward=seconds[i],
            backward=seconds[2 * n - 1 - i],
            parameters=counts[i],
        )
        for i in range(n)
    ]
    hosted = (item for items in ahead for item in items if isinstance(item, Segment))
    return Workload(
        layers=tuple(layers),
        optimizer=seconds[-1],
        width=float(max(2, BYTES[plan.precision])),
        batch=batch,
        inputs=inputs,
        launches=sum(segment.host for segment in hosted) + python,
    )


def _played(
    parts: Iterable[Items], opening: float, collective_time: Callable[[Collective], float]
) -> Iterator[float]:
    """Seconds from the end of one part to the end of the next (`sim.program.durations`)."""
    device, host = 0.0, opening
    for items in parts:
        before = device
        for item in items:
            if isinstance(item, Segment):
                own = item.duration
                device, host = own.end(device, host), own.launched(device, host)
            else:
                device += collective_time(item)
        yield device - before
