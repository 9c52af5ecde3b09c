"""Gradients compressed before they are summed over replicas, as DDP's communication hooks do it.

Encoded gradients are all-reduced if an all-reduce can add them (PowerSGD's factors one after the
other: Vogels et al. 2019, algorithm 1; torch's powerSGD_hook.py). Other encodings:
`Compression.sums`. A bucket is encoded after its backward pass, and decoded before the optimizer.

If ZeRO shards gradients, they are scattered in full precision. Each rank's share is then encoded
after the passes and summed over the replicas of its group (DALL-E within and between nodes,
Ramesh et al. 2021, appendix E). A share of a matrix has all columns and some of the rows.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import ceil

from sim.collectives.compression import Compression, SumKind
from sim.model.block import Block
from sim.model.execution import ParameterGroup
from sim.model.kernels import MemoryBound
from sim.parallel.job import Job
from sim.parallel.plan import Plan
from sim.parallel.segments import Items, segments
from sim.parallel.state import gradient_axes, replica_axes, state_axes
from sim.program.causes import COMPRESSION, DATA
from sim.program.operations import (
    After,
    Collective,
    Communicate,
    Compute,
    Operation,
    Work,
    issued,
)  # fmt: skip


def summed(
    job: Job, blocks: Sequence[Block], name: str, *, after: tuple[str, ...] = (), stream: str
) -> Iterator[Operation]:
    """Yield the operations that sum the encoded gradients of some blocks."""
    calls = [list(_calls(job, group, blocks)) for group in _groups(job, blocks)]
    for number in range(max(map(len, calls), default=0)):
        label = name if number == 0 else f"{name} second factors"
        now = _together(row[number] for row in calls if number < len(row))
        yield Communicate(name=label, calls=issued(now, stream), after=after, stream=stream)
        after = (label,)


def _together(calls: Iterable[Collective]) -> tuple[Collective, ...]:
    """Merge collectives that differ only in bytes, such as gathers of two formats of weights."""
    sizes: defaultdict[Collective, float] = defaultdict(float)
    for call in calls:
        sizes[replace(call, bytes=0.0)] += call.bytes
    return tuple(replace(call, bytes=size) for call, size in sizes.items())


def encoding(job: Job, blocks: Sequence[Block]) -> Items:
    """Return the kernels that encode the gradients of some blocks."""
    count = sum(_count(job, group, blocks) for group in _groups(job, blocks))
    return _kernel(job, "encode gradients", _way(job).encode_bytes(count))


def decoded(job: Job, blocks: Sequence[Block], after: After) -> Iterator[Compute]:
    """Yield the operation that decodes a sum, or the messages of every rank."""
    way, moved = _way(job), 0.0
    for group in _groups(job, blocks):
        ranks = job.plan.degree(summed_axes(job.plan, group))
        moved += way.decode_bytes(_count(job, group, blocks), way.read(ranks))
    items = _kernel(job, "decode gradients", moved)
    if items:
        work = Work(name="decode gradients", items=items)
        yield Compute(name="decode gradients", work=work, after=after)


def _way(job: Job) -> Compression:
    assert job.plan.gradients is not None
    return job.plan.gradients


def _groups(job: Job, blocks: Sequence[Block]) -> list[ParameterGroup]:
    """Return the groups of trained parameters of these blocks that several ranks hold."""
    groups = dict.fromkeys(group for block in blocks for group in block.parameters if group.trained)
    return [group for group in groups if summed_axes(job.plan, group)]


def summed_axes(plan: Plan, group: ParameterGroup) -> tuple[str, ...]:
    """Return the axes over which encoded gradients are summed."""
    return replica_axes(plan, group) if plan.zero >= 2 else gradient_axes(plan, group)


def shares(plan: Plan, group: ParameterGroup) -> int:
    """Return the number of shares into which gradients are scattered before they are encoded."""
    return plan.degree(state_axes(plan, group)) if plan.zero >= 2 else 1


def _count(job: Job, group: ParameterGroup, blocks: Sequence[Block]) -> float:
    whole = sum(block.parameters.get(group, 0.0) for block in blocks)
    return whole / shares(job.plan, group)


def _calls(job: Job, group: ParameterGroup, blocks: Sequence[Block]) -> Iterator[Collective]:
    axes, name = summed_axes(job.plan, group), f"{group.name} gradients"
    for kind, size in _sums(job, group, blocks):
        yield Collective(kind=kind, axes=axes, bytes=size, name=name, cause=DATA)


def _sums(
    job: Job, group: ParameterGroup, blocks: Sequence[Block]
) -> tuple[tuple[SumKind, float], ...]:
    """Return the collectives that sum a group's gradients, in order, and their bytes."""
    way, width = _way(job), job.stack.reduced_bytes(job.plan.precision)
    ranks, each = job.plan.degree(summed_axes(job.plan, group)), shares(job.plan, group)
    whole = [shape for block in blocks for shape in block.shapes(group)]
    matrices = [(ceil(rows / each), columns) for rows, columns in whole]
    return way.sums(_count(job, group, blocks), width, ranks, matrices)


def _kernel(job: Job, name: str, moved: float) -> Items:
    if not moved:
        return ()
    kernel, launch = MemoryBound(name=name, bytes=moved), job.host.launch_backward
    return segments([kernel], name=name, cause=COMPRESSION, time=job.time, launch=launch)
