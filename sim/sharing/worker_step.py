"""A worker's step by itself: a model on one device, by one stack, layer by layer."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from sim.config import catalog
from sim.hardware.device import Device
from sim.hardware.kernels.time import kernel_time
from sim.hardware.stack import Stack
from sim.model.convolution import Convolutional, layer_works
from sim.model.kernels import BYTES, Kernel
from sim.model.optimizer import optimizer_work
from sim.model.transformer import Transformer
from sim.parallel.balance import Chunk
from sim.parallel.plan import Plan
from sim.parallel.segments import segments
from sim.parallel.work import Items, Job, backward_pieces, forward, optimizer
from sim.program import Collective, Segment
from sim.sharing.plan import Sharing
from sim.sharing.workload import Piece, Workload

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
    together: Callable[[Collective], float] = free,
) -> Workload:
    """The step of one GPU with `batch` samples.

    `together` says how long a collective inside the passes takes (synchronised batch norm). That
    everybody waits there for the slowest needs no count: they wait the less at the gradients.

    >>> from sim.hardware import device, stack
    >>> from sim.model.convolution import load
    >>> v100, ddp = device.load("v100-16gb-sxm"), stack.load("pytorch-ddp")
    >>> step = worker_step(load("resnet50"), 32, Sharing(method="all_reduce"), ddp, v100)
    >>> round(step.parameters / 1e6, 1), 0.05 < step.seconds < 0.15
    (25.6, True)
    """
    if isinstance(model, Convolutional):
        return _convolutional(model, batch, plan, stack, device, together)
    return _transformer(model, batch, plan, stack, device)


def _transformer(
    model: Transformer, batch: int, plan: Sharing, stack: Stack, device: Device
) -> Workload:
    one = Plan(
        global_batch=batch,
        microbatch=batch,
        dp=1,
        precision=plan.precision,
        optimizer=plan.optimizer,
    )
    whole = Chunk(layers=model.layers, embedding=True, head=True)
    job = Job(model=model, plan=one, stack=stack, device=device, chunks=((whole,),))
    parts = [Chunk(layers=0, embedding=True)]
    parts += [Chunk(layers=1)] * model.layers + [Chunk(layers=0, head=True)]
    ahead = [forward(job, part).items for part in parts]
    back = [work.items for work, _ in backward_pieces(job, whole)][::-1]
    counts = [job.parameters(part) for part in parts]
    last = optimizer(job, job.parameters(whole), model.layers)
    return _workload(ahead, back, counts, last, stack=stack, plan=plan, batch=batch, inputs=0.0)


def _convolutional(
    model: Convolutional,
    batch: int,
    plan: Sharing,
    stack: Stack,
    device: Device,
    together: Callable[[Collective], float],
) -> Workload:
    def time(kernel: Kernel) -> float:
        return kernel_time(kernel, device)

    works = layer_works(model, microbatch=batch, precision=plan.precision, fused=stack.fusion.norm)
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
        python=stack.layer_forward * len(works), together=together,
    )  # fmt: skip


def _items(kernels: Iterable[Any], time: Callable[[Kernel], float], launch: float) -> Items:
    return segments(kernels, name="pass", cause="compute", time=time, launch=launch)


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
    together: Callable[[Collective], float] = free,
) -> Workload:
    """Play all parts in order, the host ahead of the device, and read each one's seconds."""
    seconds = list(_played([*ahead, *reversed(back), last], stack.step_host, together))
    n = len(counts)
    pieces = [
        Piece(
            forward=seconds[i],
            backward=seconds[2 * n - 1 - i],
            parameters=counts[i],
        )
        for i in range(n)
    ]
    hosted = (one for items in ahead for one in items if isinstance(one, Segment))
    return Workload(
        pieces=tuple(pieces),
        optimizer=seconds[-1],
        width=float(max(2, BYTES[plan.precision])),
        batch=batch,
        inputs=inputs,
        launches=sum(segment.host for segment in hosted) + python,
    )


def _played(
    parts: Iterable[Items], opening: float, together: Callable[[Collective], float]
) -> Iterator[float]:
    """Seconds from the end of one part to the end of the next; see `sim.program.Segment`."""
    device, host = 0.0, opening
    for items in parts:
        before = device
        for one in items:
            if isinstance(one, Segment):
                device, host = max(device + one.device, host + one.lead), host + one.host
            else:
                device += together(one)
        yield device - before
