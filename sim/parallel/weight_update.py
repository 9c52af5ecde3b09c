"""The optimizer step of a stage: overflow checks, weight updates, and copies around a gather of
weights as lists of tensors."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import ceil

from sim.model.execution import ParameterGroup
from sim.model.kernels import READ, Item, Kernel, MemoryBound
from sim.model.optimizers import optimizer_work, shares
from sim.parallel.job import Job
from sim.parallel.segments import Items, segments
from sim.parallel.state import shards
from sim.program.causes import OPTIMIZER


def optimizer(job: Job, stage: int) -> Items:
    """Return the optimizer's step on a rank of a stage."""
    return segments(
        (*_overflows(job, stage), *optimizer_kernels(job, stage)),
        name="optimizer",
        cause=OPTIMIZER,
        time=job.time,
        launch=job.stack.optimizer_launch,
    )


def _overflows(job: Job, stage: int) -> Iterator[Item]:
    """Yield DeepSpeed's search for overflows in a rank's share of fp16 gradients. It casts each
    tensor to fp32 and sums it; the host reads the sum (`_has_inf_or_nan`). ZeRO's norm casts each
    tensor to fp64 and reads it once more (runtime/zero/stage2.py, get_grad_norm_direct)."""
    plan, tensors = job.plan, _tensors(job, stage)
    if not (job.stack.reads_overflow and plan.precision == "fp16"):
        return
    for group, count in job.parameters(job.chunks[stage]).items():
        ranks = shards(plan, group) if plan.zero else 1
        each = count / tensors
        for _ in range(ceil(tensors / ranks)):
            yield MemoryBound(name="overflow check", bytes=each * (2 + 4 + 4), launches=2)
            yield READ
            if plan.zero:
                yield MemoryBound(name="norm of a tensor", bytes=each * (2 + 8 + 8), launches=2)
                yield READ


def _tensors(job: Job, stage: int) -> int:
    """Return the number of parameter tensors of a stage."""
    layers = sum(chunk.layers for chunk in job.chunks[stage])
    return layers * job.model.tensors_of_a_layer + 2


def optimizer_kernels(job: Job, stage: int) -> tuple[Kernel, ...]:
    """Return the kernels of a stage's optimizer step; groups on the same ranks share kernels."""
    tensors = _tensors(job, stage)
    together: dict[ParameterGroup, dict[ParameterGroup, float]] = {}
    for group, count in job.parameters(job.chunks[stage]).items():
        if not group.trained:
            continue
        together.setdefault(replace(group, low=False), {})[group] = count
    return tuple(
        kernel for group in together.values() for kernel in _update(job, stage, group, tensors)
    )


def _update(
    job: Job, stage: int, parameters: Mapping[ParameterGroup, float], tensors: int
) -> Iterator[Kernel]:
    """Yield the update of groups on the same ranks, whatever the format of their weights. If ZeRO
    shards states, each matrix belongs to one rank (Megatron-LM, layer-wise distributed optimizer).
    Sharded gradients are zeroed as shares, as no whole gradients outlast a pass."""
    plan, stack = job.plan, job.stack
    ranks = shards(plan, next(iter(parameters)))
    held = sum(parameters.values())
    known = job.matrices(job.chunks[stage])
    matrices = shares([matrix for group in parameters for matrix in known.get(group, ())], ranks)
    yield from optimizer_work(
        parameters=held / ranks if plan.zero >= 2 else held,
        updated=held / ranks * (1.0 - plan.offload.optimizer),
        optimizer=plan.optimizer,
        matrices=matrices,
        moments=plan.moments,
        precision=job.kept_precision,
        gradients=stack.fusion.gradients,
        fused=stack.fused_optimizer,
        by_tensor=stack.optimizer_by_tensor,
        clip=stack.clip,
        tensors=tensors,
        written=sum(n * job.gathered_bytes(group) for group, n in parameters.items()) / held,
    )
    for group, count in parameters.items():
        if job.recipe and group.low:
            from sim.model.casts import weight_casts

            yield from weight_casts(
                job.recipe, parameters=count, updated=count / ranks, tensors=tensors
            )


def gathered_copies(job: Job, stage: int) -> Items:
    """Return the copies around ZeRO-1's gather of weights as lists of tensors: the tensors are
    flattened, taken out of NCCL's buffer, and put back. Each rank's share of each tensor needs a
    kernel (nanotron, distributed.py, all_gather_coalesced; torch, ProcessGroupNCCL.cpp, `allgather`
    of lists)."""
    plan, stack = job.plan, job.stack
    if not stack.allocator.gather_copies or plan.zero != 1:
        return ()
    tensors = _tensors(job, stage)
    kernels = (
        MemoryBound(
            name="copies of gathered weights",
            bytes=3 * 2 * count * job.gathered_bytes(group),
            launches=ranks * (tensors + 2),
        )
        for group, count in job.parameters(job.chunks[stage]).items()
        if group.trained and (ranks := shards(plan, group)) > 1
    )
    launch = stack.optimizer_launch
    return segments(kernels, name="copies", cause=OPTIMIZER, time=job.time, launch=launch)
