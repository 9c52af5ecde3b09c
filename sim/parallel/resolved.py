"""A plan on a cluster: `dp` is filled in, and impossible plans and keys without effect refused."""

from collections.abc import Iterator
from dataclasses import replace

from sim.config.errors import InputError
from sim.hardware.stack import Stack, capabilities_of
from sim.model import optimizers
from sim.model.checkpointing import MODES, NONE
from sim.parallel import schedule as schedules
from sim.parallel.mesh import axes, dividing
from sim.parallel.plan import MOST_MICROBATCHES, ORDERED, PLAN_AXES, WHOLE, Plan


def resolved(plan: Plan, gpus: int, *, where: str = "plan") -> Plan:
    """Return the plan on `gpus` GPUs with `dp` filled in. Raises `InputError` if it cannot run."""
    _check_axes(plan, where)
    others = plan.degree(axis for axis in axes() if axis != "dp")
    product = others * (plan.dp or 1)
    if gpus % others or (plan.dp is not None and product != gpus):
        raise InputError(where, *_mismatch(plan, others, gpus))
    plan = replace(plan, dp=gpus // others)
    if plan.gradients is not None and plan.gradients.kind == "none":
        plan = replace(plan, gradients=None)
    plan.check_mesh()
    _check_batch(plan, where)
    _check_features(plan, where)
    return plan


def _mismatch(plan: Plan, others: int, gpus: int) -> tuple[str, str]:
    names = plan.split(axis for axis in axes() if axis not in ("tp", "pp", "dp"))
    product = "*".join(["tp", *names, "pp"])
    if gpus % others:
        fault = f"{product} = {others} does not divide the {gpus} GPUs of the cluster"
        return fault, "change tp or pp, or set gpus"
    fault = f"{product}*dp = {others * (plan.dp or 1)} but the cluster has {gpus} GPUs"
    return fault, f"set dp = {gpus // others} or leave it out"


def _check_axes(plan: Plan, where: str) -> None:
    known = list(axes())
    for axis in plan.axes:
        if axis in PLAN_AXES:
            fault = f"{axis!r} is a key of [plan] itself"
            raise InputError(f"{where}, axes", fault, f"set plan.{axis}")
        if axis not in known:
            user_axes = [axis for axis in known if axis not in PLAN_AXES]
            raise InputError.unknown(f"{where}, axes", f"no axis named {axis!r}", axis, user_axes)
        if axis not in dividing("batch", "sequence"):
            fault = f"{axis!r} divides {axes()[axis].divides}, which no operator of a block knows"
            raise InputError(f"{where}, axes", fault, "let it divide the batch or the sequence")
    names = plan.order.split("-")
    if not set(ORDERED) <= set(names) <= set(known) or len(set(names)) < len(names):
        remedy = "name tp, cp, dp and pp once each: 'tp-cp-dp-pp'"
        raise InputError(where, f"order = {plan.order!r}", remedy)


def _check_batch(plan: Plan, where: str) -> None:
    each = plan.microbatch * plan.data_parallel
    if plan.global_batch % each:
        near = max(plan.global_batch // each, 1) * each
        raise InputError(
            where,
            f"global_batch = {plan.global_batch} is not a multiple of microbatch*dp = {each}",
            f"set global_batch = {near}",
        )
    if plan.microbatches > MOST_MICROBATCHES:
        raise InputError(
            where,
            f"{plan.microbatches:,} micro-steps a step; at most {MOST_MICROBATCHES:,} can run",
            "raise microbatch or dp, or lower global_batch",
        )


def _check_features(plan: Plan, where: str) -> None:
    if plan.schedule != "none":
        schedules.listed(plan.schedule)
    if plan.schedule == "none" and plan.pp > 1:
        raise InputError(where, f"schedule = 'none' with pp = {plan.pp}", "set schedule = '1f1b'")
    if plan.schedule_memory != 1.0 and (plan.pp == 1 or schedules.searched(plan.schedule) is None):
        fault = f"schedule_memory, but schedule {plan.schedule!r} does not search an order"
        raise InputError(where, fault, "set schedule = 'zb-auto' or leave it out")
    if plan.interleave > 1 and plan.pp == 1:
        raise InputError(
            where, "interleave > 1 without pipeline stages", "set pp > 1, or interleave = 1"
        )
    _check_tensor(plan, where)
    _check_optimizer(plan, where)
    _check_graphs(plan, where)
    if plan.lora is not None and not plan.lora.modules:
        remedy = "name one of its modules or leave them out"
        raise InputError(where, "lora of no modules trains nothing", remedy)
    if plan.zero > 3:
        raise InputError(where, f"zero = {plan.zero}", "ZeRO has stages 0 to 3")
    _check_sharding(plan, where)
    if plan.offload.parameters and plan.zero < 3:
        raise InputError(where, "offload of parameters without ZeRO-3", "set zero = 3")
    if plan.pp > 1:
        _check_schedule(plan, where)


def _check_tensor(plan: Plan, where: str) -> None:
    if plan.sequence_parallel and plan.tp == 1:
        fault = "sequence_parallel without tensor parallelism"
        raise InputError(where, fault, "set tp > 1 or leave it out")
    if plan.tp_comm_overlap and not plan.sequence_parallel:
        fault = "tp_comm_overlap without sequence_parallel"
        raise InputError(where, fault, "set sequence_parallel = true or leave it out")


def _check_optimizer(plan: Plan, where: str) -> None:
    optimizer = optimizers.of(plan.optimizer, where=where)
    if plan.moments != "fp32" and not optimizer.takes_moments:
        fault = (
            f"moments = {plan.moments!r}, but the states of {plan.optimizer!r} have a fixed width"
        )
        raise InputError(where, fault, "leave it out")


def _check_graphs(plan: Plan, where: str) -> None:
    if WHOLE in plan.cuda_graph and len(plan.cuda_graph) > 1:
        fault = f"cuda_graph = {[*plan.cuda_graph]}: {WHOLE} already contains all passes"
        raise InputError(where, fault, f'set cuda_graph = ["{WHOLE}"]')
    if "moe_preprocess" in plan.cuda_graph and "moe_router" not in plan.cuda_graph:
        fault = "cuda_graph: the graph of moe_preprocess continues the graph of moe_router"
        raise InputError(where, fault, "name moe_router too")


def _check_sharding(plan: Plan, where: str) -> None:
    if plan.zero < 3 and (plan.reshard not in (None, True) or plan.prefetch is not None):
        key = "prefetch" if plan.reshard in (None, True) else "reshard"
        fault = f"{key} without sharded parameters"
        raise InputError(where, fault, "set zero = 3 or leave it out")
    if plan.gradients is not None and plan.zero >= 2 and (plan.dp_replicate or 1) == 1:
        fault = (
            f"zero = {plan.zero} scatters all gradients, but encoded gradients cannot be scattered"
        )
        raise InputError(where, fault, "set zero = 1, or dp_replicate = 2 to sum encoded shares")
    if plan.no_sync and plan.zero < 2:
        fault = "no_sync without sharded gradients"
        raise InputError(where, fault, "leave it out: gradients then wait for the last pass anyway")
    if (plan.reshard == "near") != (plan.size("dp_hpz") > 1):
        fault = "reshard = 'near' and the axis dp_hpz need each other"
        raise InputError(where, fault, "set axes = { dp_hpz = 2 } and reshard, or leave out both")


def _check_chunks(plan: Plan, chunks: int, where: str) -> None:
    if plan.interleave not in (1, chunks):
        raise schedules.wrong_chunks(where, plan.pipeline, chunks, plan.interleave)


def _check_schedule(plan: Plan, where: str) -> None:
    """Raise `InputError` if the schedule does not suit the sizes, and name a batch that does."""
    if plan.drains > 1:
        _check_drains(plan, where)
        plan = replace(plan, drains=1, global_batch=plan.global_batch // plan.drains)
    entry = schedules.listed(plan.pipeline)
    if entry is None:
        _check_chunks(plan, plan.passes().chunks, where)
        return
    _check_chunks(plan, entry.chunks or plan.interleave, where)
    if plan.pp % entry.stages == 0 and not entry.takes(plan.pp, plan.microbatches):
        each, group = plan.microbatch * plan.data_parallel, entry.group(plan.pp)
        near = -(-max(plan.microbatches, entry.least(plan.pp)) // group) * group
        raise InputError(
            where,
            f"schedule {entry.name!r} needs {entry.need(plan.pp)} microbatches on {plan.pp} stages,"
            f" but there are {plan.microbatches}",
            f"set global_batch = {each * near}",
        )
    entry.check(plan.pp, plan.microbatches, plan.chunks)


def _check_drains(plan: Plan, where: str) -> None:
    fault = f"drains = {plan.drains}"
    if plan.microbatches % plan.drains:
        said = f"{fault} does not divide {plan.microbatches} microbatches"
        raise InputError(where, said, "change it or global_batch")
    entry = schedules.listed(plan.pipeline)
    if entry and (entry.versions or entry.searched):
        said = f"{fault}, but schedule {entry.name!r} orders all microbatches of a step"
        raise InputError(where, said, "take another schedule or leave it out")


Fault = tuple[bool, str, str]  # whether the plan has the fault, the fault, the remedy


def check_used(plan: Plan, where: str) -> None:
    """Raise `InputError` for a key that has no effect in a plan of these sizes."""
    faults = (*_sizes(plan), *_offload(plan), *_recomputation(plan), *_pairs(plan))
    for found, fault, remedy in faults:
        if found:
            raise InputError(where, fault, remedy)


def _sizes(plan: Plan) -> Iterator[Fault]:
    alone = plan.pp == 1 and plan.schedule not in ("1f1b", "none")
    fault = f"schedule = {plan.schedule!r} with pp = 1: a single stage sends nothing on"
    yield alone, fault, "set pp > 1 or leave it out"
    fault = f"drains = {plan.drains} with pp = 1: there is no pipeline"
    yield plan.pp == 1 and plan.drains > 1, fault, "set pp > 1 or leave it out"
    whole = plan.degree(dividing("sequence")) == 1
    fault = f"context = {plan.context!r}, but no axis divides the sequence"
    yield plan.context is not None and whole, fault, "set cp > 1 or leave it out"
    single = plan.degree(dividing("batch", "sequence")) == 1
    fault = "gradients are compressed between replicas, but there is only one replica"
    yield plan.gradients is not None and single, fault, "leave gradients out"
    fault = "activations are compressed between stages, but there is only one stage"
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
    """Yield the faults of `overlap_experts`. Every schedule has one forward pass right in front of
    a backward pass, so a schedule that alternates has more such pairs."""
    if plan.overlap_experts and not plan.versions(0):
        most = max(map(len, plan.passes().pairs))
        fault = f"overlap_experts: passes of schedule {plan.pipeline!r} do not take turns"
        remedy = "take a schedule that alternates, such as 1f1b or dualpipe, or leave it out"
        yield most < min(2, plan.microbatches - 1), fault, remedy
    moves = "ZeRO-2 and 3" if plan.zero >= 2 else "offloaded activations"
    fault = f"overlap_experts: passes do not take turns if {moves} move tensors layer by layer"
    layered = plan.zero >= 2 or plan.offload.activations > 0.0
    yield bool(plan.overlap_experts) and layered, fault, "leave it out"


def lacking(plan: Plan, stack: Stack) -> tuple[str, ...]:
    """Return the known reasons why a stack cannot run a plan."""
    known = capabilities_of(stack.framework, where=stack.name)
    reasons = (known.lacks(*choice, stack.released) for choice in _asked(plan))
    return tuple(f"{stack.name} cannot do this: {reason}" for reason in reasons if reason)


def _asked(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield the choices that a plan makes, named as in `sim plan --only`."""
    for name in ("tp", "cp", "ep", "etp", "zero", "precision", "moments"):
        yield name, str(getattr(plan, name))
    if plan.pp > 1:
        yield "schedule", plan.pipeline
        yield "layers", "even" if plan.layers is None else "balanced"
    if plan.pipeline == "interleaved":
        uneven = f"{plan.microbatches} microbatches on {plan.pp} stages"
        yield "interleaving", uneven if plan.microbatches % plan.pp else "even"
    if plan.tp > 1:
        yield "sequence_parallel", "yes" if plan.sequence_parallel else "no"
    yield "recompute", rule if isinstance(rule := plan.recompute, str) else "+".join(rule)
    if isinstance(plan.recipe, str) and plan.recipe:
        yield "recipe", plan.recipe
