"""Messages between neighbouring pipeline stages, and the operations around them."""

from collections.abc import Iterator
from typing import Literal

from sim.model.kernels import MemoryBound
from sim.parallel.job import Chunk, Job
from sim.parallel.mesh import dividing
from sim.parallel.segments import Items, segments
from sim.program.causes import COMPRESSION, TENSOR
from sim.program.operations import Collective


def boundary_bytes(job: Job, tokens: int = 0) -> float:
    """Return the bytes that a rank of a stage hands to the next stage per microbatch: the
    activations of a sequence, or of `tokens` tokens. They are divided over tensor ranks if the
    stack scatters them (Narayanan et al. 2021, section 4.1) or sequence parallelism shards them."""
    plan, model = job.plan, job.model
    tokens = tokens or model.seq
    whole = plan.microbatch * tokens * model.hidden * job.stack.weight_bytes(plan.precision)
    return whole / (plan.tp if _scattered(job) else 1) / plan.degree(dividing("sequence"))


def handed(job: Job, kinds: tuple[str, ...], *, behind: bool) -> float:
    """Return the bytes that a rank receives before a chunk, or with `behind` sends after it."""
    if not job.model.decoder_seq:
        return boundary_bytes(job)
    from sim.parallel.encoder_decoder import handed_tokens

    return boundary_bytes(job, handed_tokens(job.model, kinds, behind=behind))


def sent_bytes(job: Job) -> float | tuple[float, ...]:
    """Return the bytes of a message between stages on the network, compressed if the plan says so.
    If layers hand over unlike tensors, return the bytes after each piece of the model."""
    if not job.model.alike:
        return tuple(_unlike(job))
    if job.model.decoder_seq and job.plan.pp > 1:
        sizes = (handed(job, chunk.kinds, behind=True) for chunk in _in_order(job)[:-1])
        return tuple(_encoded(job, size) for size in sizes)
    return _encoded(job, boundary_bytes(job))


def _encoded(job: Job, whole: float) -> float:
    width, activations = job.stack.weight_bytes(job.plan.precision), job.plan.activations
    return whole if activations is None else activations.bytes(whole / width, width)


def _in_order(job: Job) -> list[Chunk]:
    """Return the chunks in the order of the model."""
    pieces = job.plan.pieces if job.plan.pp > 1 else ((0,),)
    chunks = {
        piece: chunk
        for numbers, chunks in zip(pieces, job.chunks, strict=True)
        for piece, chunk in zip(numbers, chunks, strict=True)
    }
    return [chunks[piece] for piece in range(len(chunks))]


def _unlike(job: Job) -> Iterator[float]:
    """Yield the bytes of the output of each piece of the model but the last."""
    width, layers = job.stack.weight_bytes(job.plan.precision), 0
    for chunk in _in_order(job)[:-1]:
        layers += chunk.layers
        yield job.plan.microbatch * job.model.handed(layers - 1, width)


def unpacked(job: Job, size: float) -> Items:
    """Return the gathering and decoding of a received message of `size` bytes."""
    return (*_gather(job, size), *_coding(job, size, "decode"))


def packed(job: Job, size: float) -> Items:
    """Return the encoding of a message before it is sent."""
    return _coding(job, size, "encode")


def _scattered(job: Job) -> bool:
    return job.plan.sequence_parallel or (job.stack.scatter_gather and job.plan.tp > 1)


def _gather(job: Job, size: float) -> Items:
    """Return the all-gather among tensor-parallel ranks, if each received a share and all need the
    whole message."""
    if job.plan.sequence_parallel or not _scattered(job):
        return ()
    call = Collective(
        kind="all_gather",
        axes=job.execution.sharding.tensor,
        bytes=size * job.plan.tp,
        name="gather boundary",
        cause=TENSOR,
    )
    return (call,)


def _coding(job: Job, size: float, way: Literal["encode", "decode"]) -> Items:
    """Return the kernels that encode or decode compressed activations, if any."""
    activations = job.plan.activations
    if activations is None or job.plan.pp == 1:
        return ()
    elements = size / job.stack.weight_bytes(job.plan.precision)
    moved = activations.encode_bytes if way == "encode" else activations.decode_bytes
    kernel = MemoryBound(name="compression", bytes=moved(elements))
    return segments(
        [kernel],
        name=f"{way} activations",
        cause=COMPRESSION,
        time=job.time,
        launch=job.host.launch_forward,
    )
