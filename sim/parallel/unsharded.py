"""What is whole for a while under ZeRO: gathered weights, gradients before they are scattered."""

from collections.abc import Sequence

from sim.model.block import Block
from sim.parallel.job import Job
from sim.program.actions import Occasion
from sim.program.memory import NOTHING, MemoryUse

NEAR = "dp"  # the axis that secondary shares are divided over


def is_near(job: Job, occasion: Occasion) -> bool:
    """Whether a pass finds the weights it needs among near ranks (ZeRO++ hpZ, Wang et al. 2023,
    section 3.2; FSDP2's `reshard_after_forward` as a number)."""
    return job.plan.reshard == "near" and occasion.kind != "F"


def gathered(job: Job, blocks: Sequence[Block], occasion: Occasion) -> MemoryUse:
    """The whole weights of a unit, as ZeRO-3 gathers them; from near ranks, the secondary share
    is there already."""
    size = _whole(job, blocks) * (job.plan.zero >= 3)
    if is_near(job, occasion):
        size -= size / job.plan.size(NEAR)
    part = {"gathered weights": size}
    return MemoryUse(part, part)


def given_back(job: Job, blocks: Sequence[Block], occasion: Occasion) -> MemoryUse:
    """The end of them, all but a secondary share behind a forward pass that keeps one."""
    size = _whole(job, blocks)
    if job.plan.reshard == "near" and occasion.kind == "F":
        size -= size / job.plan.size(NEAR)
    return MemoryUse({"gathered weights": -size})


def _whole(job: Job, blocks: Sequence[Block]) -> float:
    return sum(
        count * job.gathered_bytes(group)
        for block in blocks
        for group, count in block.parameters.items()
    )


def made(job: Job, occasion: Occasion, block: Block) -> MemoryUse:
    """The whole gradients of a block that a backward pass leaves to be reduced, or to be added to
    by the passes of later micro-steps."""
    if job.plan.zero < 2 or occasion.kind not in ("B", "W"):
        return NOTHING
    if job.plan.no_sync and not occasion.first:
        return NOTHING
    part = {"unsharded gradients": block.trained * _made_width(job)}
    return MemoryUse(part, part)


def scattered(
    job: Job, blocks: Sequence[Block], before: Sequence[Block], *, last: bool
) -> MemoryUse:
    """The reduction of a unit: its input is there until the reduction behind it begins.

    It is a copy of the gradients where they are joined or cast for it, else the gradients
    themselves; the reduction of the units `before` has ended by then.
    """
    gradients, width = _trained(blocks) * _made_width(job), _input_width(job)
    ends = _trained(before) * width + (_trained(blocks) * width if last else 0.0)
    copy = _trained(blocks) * width
    kept = {"unsharded gradients": copy - gradients - ends}
    own = width == _made_width(job) and job.stack.sharding != "per-parameter"
    return MemoryUse(kept, {} if own else {"unsharded gradients": copy})


def _trained(blocks: Sequence[Block]) -> float:
    return sum(block.trained for block in blocks)


def _made_width(job: Job) -> float:
    """Bytes of a gradient: as autograd makes it, or as micro-steps sum it up without reducing it
    (FSDP2 in the type of the reduction, `to_accumulated_grad_if_needed`)."""
    summed = job.plan.no_sync and job.stack.sharding == "per-parameter"
    return float(_input_width(job) if summed else job.stack.weight_bytes(job.plan.precision))


def _input_width(job: Job) -> int:
    return job.stack.reduced_bytes(job.plan.precision)
