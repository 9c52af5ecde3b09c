"""Memory of tensors that are temporarily whole under ZeRO: gathered weights, and gradients before
they are scattered."""

from collections.abc import Sequence

from sim.model.block import Block
from sim.model.execution import ParameterGroup
from sim.parallel.job import Job
from sim.parallel.state import shards, state_axes
from sim.program.memory import NOTHING, MemoryUse, added
from sim.program.schedule import PassVariant

NEAR = "dp"  # the axis over which secondary shares of weights are divided


def is_near(job: Job, variant: PassVariant) -> bool:
    """Whether a pass finds the weights it needs among near ranks (ZeRO++ hpZ, Wang et al. 2023,
    section 3.2; FSDP2's `reshard_after_forward` as a number)."""
    return job.reshard == "near" and variant.kind != "F"


def gathered(job: Job, blocks: Sequence[Block], variant: PassVariant) -> MemoryUse:
    """Return the memory that gathering a unit's weights takes (ZeRO-3). If they come from near
    ranks, the rank's secondary share is allocated already."""
    size = _whole(job, blocks) * (job.plan.zero >= 3)
    if is_near(job, variant):
        size -= size / job.plan.size(NEAR)
    part = {"gathered weights": size}
    return MemoryUse(part, part)


def given_back(job: Job, blocks: Sequence[Block], variant: PassVariant) -> MemoryUse:
    """Return the memory that freeing a unit's gathered weights gives back. A forward pass may keep
    a secondary share."""
    size = _whole(job, blocks)
    if job.reshard == "near" and variant.kind == "F":
        size -= size / job.plan.size(NEAR)
    return MemoryUse({"gathered weights": -size})


def divided(job: Job, blocks: Sequence[Block]) -> dict[ParameterGroup, float]:
    """Return the blocks' parameters of which other ranks, or the host, hold shares. An expert on a
    single rank is never divided (NVIDIA NeMo AutoModel, `ignored_params` in
    components/moe/parallelizer.py)."""
    every = added(*(block.parameters for block in blocks))
    away = bool(job.plan.offload.parameters)
    return {group: n for group, n in every.items() if away or state_axes(job.plan, group)}


def trained(job: Job, blocks: Sequence[Block]) -> float:
    """Return the number of divided parameters that have gradients."""
    return sum(count for group, count in divided(job, blocks).items() if group.trained)


def shared(job: Job, blocks: Sequence[Block]) -> float:
    """Return the number of divided parameters with gradients in a rank's own shares."""
    return sum(
        count / shards(job.plan, group)
        for group, count in divided(job, blocks).items()
        if group.trained
    )


def _whole(job: Job, blocks: Sequence[Block]) -> float:
    every = divided(job, blocks).items()
    return sum(count * job.gathered_bytes(group) for group, count in every)


def made(job: Job, variant: PassVariant, block: Block) -> MemoryUse:
    """Return the memory of a block's whole gradients after a backward pass, until they are reduced
    or later micro-steps add to them."""
    if job.plan.zero < 2 or not variant.makes_gradients:
        return NOTHING
    if job.no_sync and not variant.first:
        return NOTHING
    part = {"unsharded gradients": trained(job, [block]) * _made_width(job)}
    return MemoryUse(part, part)


def scattered(
    job: Job, blocks: Sequence[Block], before: Sequence[Block], *, last: bool
) -> MemoryUse:
    """Return the memory that a unit's reduction uses. Its input is alive until the next reduction
    begins. The input is a copy of the gradients if they are joined or cast for the reduction,
    otherwise the gradients themselves. This reduction frees the input of the units `before`."""
    if job.plan.zero < 2:  # The reduction reads the gradients where they are kept.
        return NOTHING
    gradients, width = trained(job, blocks) * _made_width(job), _input_width(job)
    ends = trained(job, before) * width + (trained(job, blocks) * width if last else 0.0)
    copy = trained(job, blocks) * width
    kept = {"unsharded gradients": copy - gradients - ends}
    in_place = width == _made_width(job) and job.stack.sharding != "per-parameter"
    return MemoryUse(kept, {} if in_place else {"unsharded gradients": copy})


def _made_width(job: Job) -> float:
    """Return the bytes of a gradient: as autograd makes it, or as micro-steps sum it up without
    reducing it (FSDP2 in the type of the reduction, `to_accumulated_grad_if_needed`)."""
    summed = job.no_sync and job.stack.sharding == "per-parameter"
    return float(_input_width(job) if summed else job.stack.weight_bytes(job.plan.precision))


def _input_width(job: Job) -> int:
    return job.stack.reduced_bytes(job.plan.precision)
