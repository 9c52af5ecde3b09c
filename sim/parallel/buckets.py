"""Gradients in buckets: cut in the order in which a backward pass makes them (DDP, Li et al. 2020).

Each bucket is reduced while the pass goes on (section 3.2.3)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from sim.model.block import Block
from sim.model.kernels import MemoryBound
from sim.parallel.data import STREAM, summed
from sim.parallel.job import Job, host_time
from sim.parallel.segments import Items, Piece, joined, segments
from sim.program.causes import DATA
from sim.program.operations import (
    INPUT,
    Beside,
    Collective,
    Communicate,
    Compute,
    Copy,
    Operation,
    Work,
)


def buckets(pieces: Iterable[Piece], *, first: float, size: float) -> Iterator[list[Piece]]:
    """Cut the pieces of a backward pass into buckets of at least `size` parameters. The first
    bucket of the pass may be smaller, so that communication starts early. A layer's gradients leave
    in one call even if DDP would cut them into several buckets. Ring latencies were fitted to whole
    layers, so more calls would overstate the time on large clusters."""
    held: list[Piece] = []
    limit = first
    for piece in pieces:
        held.append(piece)
        if sum(piece.block.trained for piece in held) >= limit:
            yield held
            held, limit = [], size
    if held:
        yield held


def cut(job: Job, pieces: Iterable[Piece]) -> list[list[Piece]]:
    """Return the pieces of a backward pass in buckets of the stack's size."""
    stack = job.stack
    width = stack.reduced_bytes(job.plan.precision)
    return list(buckets(pieces, first=stack.first_bucket / width, size=stack.bucket / width))


def overlapped(job: Job, pieces: Sequence[Piece]) -> Iterator[Operation]:
    """Yield a chunk's last backward pass in buckets, each followed by its reduction."""
    in_buckets = cut(job, pieces)
    beside: list[Operation] = []
    for number, bucket in enumerate(in_buckets):
        name = "" if number == len(in_buckets) - 1 else f"bucket {number}"
        whole = joined(bucket, name="backward")
        blocks = [piece.block for piece in bucket]
        against = tuple(map(Beside, collectives(beside)))
        beside = summed(job, blocks, f"reduce {number}", after=(name,), stream=STREAM)
        work = whole.work
        if items := around(job, blocks, beside):
            work = Work(name=work.name, items=(work, *items))
        yield Compute(
            name=name,
            work=replace(work, beside=against),
            after=(INPUT,) if number == 0 else (),
            memory=whole.memory,
        )
        yield from beside


def around(job: Job, blocks: Sequence[Block], reduction: Iterable[Operation]) -> Items:
    """Return the work that a bucket adds to its computation: the encoding or copies of gradients,
    and the host's checks. A reduction stands for several of DDP's, whose checks are added here."""
    if job.plan.gradients is not None:
        from sim.parallel import compressed

        items = compressed.encoding(job, blocks)
    else:
        items = bucketed(job, blocks)
    late = sum(map(job.checked, collectives(reduction)))
    return (*items, *host_time(late * (_ddp_buckets(job, blocks) - 1))) if late else items


def bucketed(job: Job, blocks: Iterable[Block]) -> Items:
    """Return the copies of gradients around their reduction, on the compute stream."""
    moved = sum(block.trained for block in blocks) * job.stack.bucket_bytes(job.plan.precision)
    kernel = MemoryBound(name="bucket gradients", bytes=moved)
    launch = job.host.launch_backward
    name = kernel.name
    kernels = [kernel] if moved else []
    return segments(kernels, name=name, cause=DATA, time=job.time, launch=launch)


def collectives(operations: Iterable[Operation]) -> tuple[Collective, ...]:
    """Return the collectives among devices that operations call. They slow kernels beside them."""
    return tuple(
        call
        for operation in operations
        if isinstance(operation, Communicate)
        for call in operation.calls
        if isinstance(call, Collective) and not isinstance(call, Copy)
    )


def _ddp_buckets(job: Job, blocks: Iterable[Block]) -> int:
    """Return the number of buckets of DDP itself for the gradients of these blocks. DDP closes a
    bucket once its matrices reach `bucket` bytes (torch, reducer.cpp, `compute_bucket_assignment`).
    """
    width, number, filled = job.stack.weight_bytes(job.plan.precision), 0, 0.0
    for block in blocks:
        for matrix in (m for matrices in block.matrices.values() for m in reversed(matrices)):
            for _ in range(matrix.number):
                filled += matrix.rows * matrix.columns * width
                if filled >= job.stack.bucket:
                    number, filled = number + 1, 0.0
    return max(number + (filled > 0.0), 1)
