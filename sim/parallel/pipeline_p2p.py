"""Messages between neighbouring pipeline stages, and the operations around them."""

from collections.abc import Iterator
from typing import Literal

from sim.model.kernels import MemoryBound
from sim.parallel.job import Job
from sim.parallel.mesh import dividing
from sim.parallel.segments import Items, segments
from sim.program.causes import COMPRESSION, TENSOR
from sim.program.operations import Collective


def boundary_bytes(job: Job) -> float:
    """Bytes of what one stage hands to the next, per rank and microbatch: the activations, cut
    over tensor ranks where the stack scatters them (Narayanan et al. 2021, section 4.1) or they
    are sharded."""
    plan, model = job.plan, job.model
    whole = plan.microbatch * model.seq * model.hidden * job.stack.weight_bytes(plan.precision)
    return whole / (plan.tp if _scattered(job) else 1) / plan.degree(dividing("sequence"))


def sent_bytes(job: Job) -> float | tuple[float, ...]:
    """The same as they cross the network: compressed where the plan says so. Of layers that hand
    over unlike tensors, the bytes behind each piece of the model."""
    if not job.model.alike:
        return tuple(_unlike(job))
    whole, width = boundary_bytes(job), job.stack.weight_bytes(job.plan.precision)
    activations = job.plan.activations
    return whole if activations is None else activations.bytes(whole / width, width)


def _unlike(job: Job) -> Iterator[float]:
    """Outputs of the last layer of each piece but the last piece."""
    pieces = job.plan.pieces if job.plan.pp > 1 else ((0,),)
    chunks = {
        piece: chunk
        for numbers, chunks in zip(pieces, job.chunks, strict=True)
        for piece, chunk in zip(numbers, chunks, strict=True)
    }
    width, layers = job.stack.weight_bytes(job.plan.precision), 0
    for piece in range(len(chunks) - 1):
        layers += chunks[piece].layers
        yield job.plan.microbatch * job.model.handed(layers - 1, width)


def unpacked(job: Job) -> Items:
    """Gathering and decoding of a received message."""
    return (*_gather(job), *_coding(job, "decode"))


def packed(job: Job) -> Items:
    """Encoding of a message before it is sent."""
    return _coding(job, "encode")


def _scattered(job: Job) -> bool:
    return job.plan.sequence_parallel or (job.stack.scatter_gather and job.plan.tp > 1)


def _gather(job: Job) -> Items:
    """Tensor-parallel peers received a share each and need the whole."""
    if job.plan.sequence_parallel or not _scattered(job):
        return ()
    call = Collective(
        kind="all_gather",
        axes=job.execution.sharding.tensor,
        bytes=boundary_bytes(job) * job.plan.tp,
        name="gather boundary",
        cause=TENSOR,
    )
    return (call,)


def _coding(job: Job, way: Literal["encode", "decode"]) -> Items:
    """Encoding or decoding compressed activations."""
    activations = job.plan.activations
    if activations is None or job.plan.pp == 1:
        return ()
    elements = boundary_bytes(job) / job.stack.weight_bytes(job.plan.precision)
    moved = activations.encode_bytes if way == "encode" else activations.decode_bytes
    kernel = MemoryBound(name="compression", bytes=moved(elements))
    return segments(
        [kernel],
        name=f"{way} activations",
        cause=COMPRESSION,
        time=job.time,
        launch=job.host.launch_forward,
    )
