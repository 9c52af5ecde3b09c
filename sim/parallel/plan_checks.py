"""What a plan asks in vain: keys without effect, and what its software cannot do."""

from collections.abc import Iterator

from sim.config.errors import InputError
from sim.hardware import capabilities
from sim.hardware.stack import Stack
from sim.model.checkpointing import MODES, NONE
from sim.parallel.mesh import dividing
from sim.parallel.plan import Plan

Fault = tuple[bool, str, str]  # whether there is a fault, which, what to do


def check_used(plan: Plan, where: str) -> None:
    """Raise `InputError` for a key that does not act in a plan of these sizes."""
    faults = (*_sizes(plan), *_offload(plan), *_recomputation(plan), *_pairs(plan))
    for found, fault, remedy in faults:
        if found:
            raise InputError(where, fault, remedy)


def _sizes(plan: Plan) -> Iterator[Fault]:
    alone = plan.pp == 1 and plan.schedule not in ("1f1b", "none")
    fault = f"schedule = {plan.schedule!r} with pp = 1: a single stage passes to none"
    yield alone, fault, "set pp > 1 or leave it out"
    fault = f"drains = {plan.drains} with pp = 1: there is no pipeline"
    yield plan.pp == 1 and plan.drains > 1, fault, "set pp > 1 or leave it out"
    whole = plan.degree(dividing("sequence")) == 1
    fault = f"context = {plan.context!r}, but no axis divides the sequence"
    yield plan.context is not None and whole, fault, "set cp > 1 or leave it out"
    single = plan.degree(dividing("batch", "sequence")) == 1
    fault = "gradients are compressed between replicas, of which there is one"
    yield plan.gradients is not None and single, fault, "leave gradients out"
    fault = "activations are compressed between stages, of which there is one"
    yield plan.activations is not None and plan.pp == 1, fault, "leave activations out"
    counted = (
        plan.account_for_embedding_in_pipeline_split or plan.account_for_loss_in_pipeline_split
    )
    fault = "account_for_..._in_pipeline_split, but there is no split of layers to make"
    yield counted and (plan.pp == 1 or plan.layers is not None), fault, "leave it out"


def _offload(plan: Plan) -> Iterator[Fault]:
    offload = plan.offload
    fault = "offload.overlap without offload"
    yield not offload and not offload.overlap, fault, "set a share of it, or leave it out"
    fault = "offload.nvme, but neither optimizer nor parameters are offloaded"
    drives = offload.nvme and not (offload.optimizer or offload.parameters)
    yield drives, fault, "set optimizer or parameters, or leave it out"


def _recomputation(plan: Plan) -> Iterator[Fault]:
    names = (plan.recompute,) if isinstance(plan.recompute, str) else plan.recompute
    mode = next((name for name in names if name in MODES), NONE)
    fault = f"recompute = {list(names)}: {mode!r} stands alone"
    yield len(names) > 1 and bool(set(names) & set(MODES)), fault, f'set recompute = "{mode}"'
    modules = plan.lora.modules if plan.lora else ()
    named = (("recompute", names), ("cuda_graph", plan.cuda_graph), ("lora.modules", modules))
    for key, given in named:
        twice = next((name for name in given if given.count(name) > 1), "")
        yield bool(twice), f"{key} names {twice!r} twice", "name it once"


def _pairs(plan: Plan) -> Iterator[Fault]:
    """All schedules have a last forward pass in front of a first backward pass."""
    if plan.overlap_experts and not plan.versions(0):
        most = max(map(len, plan.passes().pairs))
        fault = f"overlap_experts: passes of schedule {plan.pipeline!r} do not take turns"
        remedy = "take one that alternates, such as 1f1b, interleaved or dualpipe, or leave it out"
        yield most < min(2, plan.microbatches - 1), fault, remedy
    moves = "ZeRO-2 and 3" if plan.zero >= 2 else "offloaded activations"
    fault = f"overlap_experts: passes take no turns where {moves} move tensors layer by layer"
    layered = plan.zero >= 2 or plan.offload.activations > 0.0
    yield bool(plan.overlap_experts) and layered, fault, "leave it out"


def lacking(plan: Plan, stack: Stack) -> tuple[str, ...]:
    """Reasons why a stack could not run a plan as it is; none where all is there, or unknown."""
    known = capabilities.load(stack.framework, where=stack.name)
    reasons = (known.lacks(choice, value, stack.released) for choice, value in _asked(plan))
    return tuple(f"{stack.name} cannot do this: {reason}" for reason in reasons if reason)


def _asked(plan: Plan) -> Iterator[tuple[str, str]]:
    """The choices that a plan makes, as `sim plan --only` has them."""
    for name in ("tp", "cp", "ep", "etp", "zero", "precision", "moments"):
        yield name, str(getattr(plan, name))
    if plan.pp > 1:
        yield "schedule", plan.pipeline
        yield "layers", "even" if plan.layers is None else "balanced"
    if plan.tp > 1:
        yield "sequence_parallel", "yes" if plan.sequence_parallel else "no"
    rule = plan.recompute
    yield "recompute", rule if isinstance(rule, str) else "+".join(rule)
    if isinstance(plan.recipe, str) and plan.recipe:
        yield "recipe", plan.recipe
