"""Tensors that are whole for a while under ZeRO: gathered weights, gradients before they are
scattered."""

from collections.abc import Sequence

from sim.model.block import Block
from sim.model.execution import ParameterGroup
from sim.parallel.job import Job
from sim.parallel.state import shards, state_axes
from sim.program.actions import PassVariant
from sim.program.memory import NOTHING, MemoryUse, added

NEAR = "dp"  # the axis that secondary shares are divided over


def is_near(job: Job, variant: PassVariant) -> bool:
    """Whether a pass finds the weights it needs among near ranks (ZeRO++ hpZ, Wang et al. 2023,
    section 3.2; FSDP2's `reshard_after_forward` as a number)."""
    return job.reshard == "near" and variant.kind != "F"


def gathered(job: Job, blocks: Sequence[Block], variant: PassVariant) -> MemoryUse:
    """The whole weights of a unit, as ZeRO-3 gathers them; from near ranks, the secondary share
    is there already."""
    size = _whole(job, blocks) * (job.plan.zero >= 3)
    if is_near(job, variant):
        size -= size / job.plan.size(NEAR)
    part = {"gathered weights": size}
    return MemoryUse(part, part)


def given_back(job: Job, blocks: Sequence[Block], variant: PassVariant) -> MemoryUse:
    """The end of them, all but a secondary share behind a forward pass that keeps one."""
    size = _whole(job, blocks)
    if job.reshard == "near" and variant.kind == "F":
        size -= size / job.plan.size(NEAR)
    return MemoryUse({"gathered weights": -size})


def divided(job: Job, blocks: Sequence[Block]) -> dict[ParameterGroup, float]:
    """Their parameters that others hold shares of. An expert that a single rank holds is whole
    anyway (NVIDIA NeMo AutoModel, `ignored_params` in components/moe/parallelizer.py)."""
    every = added(*(block.parameters for block in blocks))
    away = bool(job.plan.offload.parameters)
    return {group: n for group, n in every.items() if away or state_axes(job.plan, group)}


def trained(job: Job, blocks: Sequence[Block]) -> float:
    """How many of these parameters have gradients."""
    return sum(count for group, count in divided(job, blocks).items() if group.trained)


def shared(job: Job, blocks: Sequence[Block]) -> float:
    """The same of a rank's shares."""
    return sum(
        count / shards(job.plan, group)
        for group, count in divided(job, blocks).items()
        if group.trained
    )


def _whole(job: Job, blocks: Sequence[Block]) -> float:
    every = divided(job, blocks).items()
    return sum(count * job.gathered_bytes(group) for group, count in every)


def made(job: Job, variant: PassVariant, block: Block) -> MemoryUse:
    """The whole gradients of a block that a backward pass leaves to be reduced, or to be added to
    by the passes of later micro-steps."""
    if job.plan.zero < 2 or not variant.makes_gradients:
        return NOTHING
    if job.no_sync and not variant.first:
        return NOTHING
    part = {"unsharded gradients": trained(job, [block]) * _made_width(job)}
    return MemoryUse(part, part)


def scattered(
    job: Job, blocks: Sequence[Block], before: Sequence[Block], *, last: bool
) -> MemoryUse:
    """The reduction of a unit: its input is there until the reduction behind it begins.

    It is a copy of the gradients where they are joined or cast for it, else the gradients
    themselves; the reduction of the units `before` has ended by then.
    """
    if job.plan.zero < 2:  # it reads the gradients where they are kept
        return NOTHING
    gradients, width = trained(job, blocks) * _made_width(job), _input_width(job)
    ends = trained(job, before) * width + (trained(job, blocks) * width if last else 0.0)
    copy = trained(job, blocks) * width
    kept = {"unsharded gradients": copy - gradients - ends}
    in_place = width == _made_width(job) and job.stack.sharding != "per-parameter"
    return MemoryUse(kept, {} if in_place else {"unsharded gradients": copy})


def _made_width(job: Job) -> float:
    """Bytes of a gradient: as autograd makes it, or as micro-steps sum it up without reducing it
    (FSDP2 in the type of the reduction, `to_accumulated_grad_if_needed`)."""
    summed = job.no_sync and job.stack.sharding == "per-parameter"
    return float(_input_width(job) if summed else job.stack.weight_bytes(job.plan.precision))


def _input_width(job: Job) -> int:
    return job.stack.reduced_bytes(job.plan.precision)
