"""How a training step is spread over the cluster: the `[plan]` table of a scenario."""

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Annotated, Any, Literal

from sim.config.checked import Checked
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.schema import Choice, section
from sim.config.units import Ge, Gt, Le, Portion
from sim.hardware.device import Device
from sim.hardware.stack import Stack
from sim.model.checkpointing import FULL, NONE, Checkpointing, Names
from sim.model.fusion import Context, Dispatcher
from sim.model.kernels import Precision
from sim.model.model import Model
from sim.model.optimizers import Moments
from sim.parallel import schedule as schedules
from sim.parallel.mesh import Layouts, axes, axis_of, dividing, every_axis, layouts
from sim.program.schedule import Places, Schedule

if TYPE_CHECKING:
    from sim.collectives.compression import Compression
    from sim.model.lora import Lora
    from sim.model.stash import Stash
else:
    Compression = section("sim.collectives.compression:Compression")
    Lora = section("sim.model.lora:Lora")
    Stash = section("sim.model.stash:Stash")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offload:
    """Shares of tensors that are kept in the host's memory instead of the device's.

    `optimizer` is the share of the optimizer's states. The host's processors then update its
    weights. `parameters` is the share of ZeRO-3's shards. `activations` is the share of the layers
    of each chunk, counted from the first, whose activations are offloaded. With `overlap` copies
    run beside the layers; without it the device waits for each copy. `nvme` keeps states and
    parameters on the node's drives.
    """

    optimizer: Portion = 0.0
    parameters: Portion = 0.0
    activations: Portion = 0.0
    overlap: bool = True
    nvme: bool = False

    def __bool__(self) -> bool:
        return bool(self.optimizer or self.parameters or self.activations)


ON_DEVICE = Offload()


def with_checkpoints(offload: Offload, checkpointing: Checkpointing, recompute: Names) -> Offload:
    """Return the offload. It holds all activations if the stack keeps them on the host for layers
    that run again as a whole (`Checkpointing.on_host`)."""
    if not (checkpointing.on_host and recompute in (FULL, (FULL,))):
        return offload
    return replace(offload, activations=1.0)


Count = Annotated[int, Ge(1)]
MOST_MICROBATCHES, MOST_CHUNKS = 20_000, 1_000
# Megatron-Core's scopes (core/transformer/enums.py, CudaGraphModule, and cuda_graph_impl).
WHOLE = "full_iteration"
Scope = Literal["full_iteration", "attn", "mlp", "mamba", "moe_router", "moe_preprocess"]

ORDERED = ("tp", "cp", "dp", "pp")  # axes that every `order` has to name
PLAN_AXES = (*ORDERED, "dp_replicate", "ep", "etp")  # axes that are keys of the plan itself


@dataclass(frozen=True, kw_only=True)
class Plan(Checked):
    """Sizes of the mesh axes, the batch, and the ways of saving memory.

    `microbatch` counts sequences per micro-step and data-parallel rank, `global_batch` sequences
    per optimizer step. If `dp` is left out, it follows from the number of GPUs. `dp_replicate` is
    the number of replicas of each group of `dp` ranks; ZeRO does not shard over them (hybrid
    sharding). `axes` holds the sizes of further axes. Experts have a separate layout on the ranks
    of a stage: `etp` neighbours share each expert, and `ep` groups of them share the experts of a
    layer. Three keys override how the stack treats experts. `dispatcher` is how tokens reach
    experts. `overlap_experts` runs the all-to-alls of tokens beside passes of other microbatches,
    so each stage runs one more forward pass ahead (false: passes never overlap, even if a schedule
    such as DualPipe pairs them). `overlap_shared` runs the all-to-alls beside the layer's own
    shared experts (`sim.model.experts.overlap`). `context` is how attention reaches the rest of a
    sequence that `cp` divides: by a ring, an all-gather or an exchange for heads
    (`sim.model.context_parallel`); by default as the stack does. An axis `ulysses` divides the
    sequence in addition to `cp`, by an exchange for heads. `schedule` is a name of
    `sim.parallel.schedule`, or a CSV of actions. For a schedule that searches an order,
    `schedule_memory` limits activations, in multiples of 1F1B's. A step's microbatches go through
    the pipeline in `drains` groups, and the pipeline drains after each (a trainer with
    torch.distributed.pipelining drains in every micro-step). `layers` gives the transformer layers
    of each pipeline stage (with several chunks a stage, of each chunk in the order of the model);
    by default they are split evenly, or as the stack does. `zero` is the ZeRO stage (Rajbhandari et
    al. 2020): 0 none, 1 optimizer state, 2 also gradients, 3 also parameters. Under ZeRO-3,
    `reshard` says when gathered weights are freed: after the forward pass (true: FSDP's
    FULL_SHARD), when the backward pass has used them (false: SHARD_GRAD_OP), or after the forward
    pass except a share in each group of `dp` ranks ("near", with the axis `dp_hpz`). `prefetch` is
    the number of units that are gathered ahead (by default the stack's). With `no_sync`, ZeRO-2 and
    3 add up whole gradients and reduce them only after the last micro-step. By default pipelines
    keep gathered weights and reduce once a step, and jobs without a pipeline do neither
    (`Job.reshard`, `Job.no_sync`). `tp_comm_overlap` runs tensor-parallel collectives in pieces
    beside their products (Megatron's user buffers; `Fusion.user_buffers`); by default as the stack
    does. `defer_embedding_wgrad_compute` leaves the output layer's weight gradients to the end of
    the step (`sim.parallel.deferred`). `grad_reduce_in_fp32` says whether gradients are added up
    and summed over replicas in fp32; by default as the stack does. An even split of the layers
    counts the embedding (`account_for_embedding_in_pipeline_split`) and the head (`..._loss_...`)
    as one layer each. `precision` is the precision of matrix products. Below 16 bits a `recipe`
    (`sim.model.precision`) says how operands are cast: by default the stack's recipe, or a named
    recipe, or a table whose key `like` names a recipe and whose other keys change it. With `lora`
    adapters are trained and the model is frozen. `stash` is how convolutional networks keep feature
    maps between passes (`sim.model.stash`). `optimizer` is a name of `sim.model.optimizers`;
    `moments` is the precision of its states. Each scope of a layer that `cuda_graph` names is
    launched as one CUDA graph; neighbouring scopes are one graph. "full_iteration" is one graph of
    all passes. `offload` says which tensors are kept on the host. `activations` is how activations
    are compressed between stages, `gradients` how gradients are compressed between replicas
    (`sim.collectives.compression`). `recompute` says which parts of a layer run again before its
    backward pass: none, selective (as the stack does), full, or the named modules and operators.
    `recompute_method` and `recompute_layers` (`sim.parallel.recompute_method`) restrict it to some
    layers.
    """

    global_batch: Count
    microbatch: Count = 1
    tp: Count = 1
    cp: Count = 1
    context: Context | None = None
    pp: Count = 1
    dp: Count | None = None
    dp_replicate: Count = 1
    ep: Count = 1
    etp: Count = 1
    axes: Mapping[str, Count] = field(default_factory=dict)
    schedule: Annotated[str, Choice(schedules.left_behind)] = "1f1b"
    schedule_memory: Annotated[float, Gt(0)] = 1.0
    drains: Count = 1
    interleave: Annotated[int, Ge(1), Le(MOST_CHUNKS)] = 1
    layers: tuple[Annotated[int, Ge(0)], ...] | None = None
    zero: Annotated[int, Ge(0)] = 0
    reshard: bool | Literal["near"] | None = None
    no_sync: bool | None = None
    prefetch: Annotated[int, Ge(0)] | None = None
    offload: Offload = ON_DEVICE
    recompute: Names = NONE
    recompute_method: Literal["uniform", "block", "every"] | None = None
    recompute_layers: Count | None = None
    sequence_parallel: bool = False
    dispatcher: Dispatcher | None = None
    overlap_experts: bool | None = None
    overlap_shared: bool | None = None
    tp_comm_overlap: bool | None = None
    defer_embedding_wgrad_compute: bool = False
    grad_reduce_in_fp32: bool | None = None
    account_for_embedding_in_pipeline_split: bool = False
    account_for_loss_in_pipeline_split: bool = False
    precision: Precision = "bf16"
    recipe: str | Mapping[str, Any] = ""
    lora: Lora | None = None
    cuda_graph: tuple[Scope, ...] = ()
    stash: Stash | None = None
    optimizer: str = "adam"
    moments: Moments = "fp32"
    order: str = "tp-cp-dp-pp"
    activations: Compression | None = None
    gradients: Compression | None = None

    def size(self, axis: str) -> int:
        """Return the number of ranks along an axis of the plan or of the mesh."""
        given = axis in PLAN_AXES or axis in every_axis()
        return self._given(axis) if given else self.mesh[axis]

    def degree(self, names: Iterable[str]) -> int:
        """Return the number of ranks that differ only along these axes."""
        return prod(self.size(axis) for axis in names)

    def split(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the mesh's axes that make up these axes of the plan, except axes of one rank."""
        known = self.digits
        parts = (part for axis in names for part in known.parts.get(axis, ()))
        return tuple(part for part in parts if known.mesh[part] > 1)

    @property
    def mesh(self) -> Mapping[str, int]:
        """Axis sizes, fastest varying first; axes that `order` leaves out follow their neighbour.

        >>> Plan(global_batch=8, tp=2, dp=2, dp_replicate=2, order="tp-cp-pp-dp").mesh
        {'tp': 2, 'cp': 1, 'pp': 1, 'dp': 2, 'dp_replicate': 2}
        """
        return self.digits.mesh

    @cached_property
    def digits(self) -> Layouts:
        """The mesh, and the digits of each axis; plans of equal sizes share one object."""
        names = self.order.split("-")
        before = ""
        for axis in axes():
            if axis not in names and self._given(axis) > 1:
                names.insert(names.index(before) + 1 if before else 0, axis)
            before = axis if axis in names else before
        sizes = tuple((axis, self._given(axis)) for axis in names)
        return layouts(sizes, tuple((axis, self._given(axis)) for axis in dividing("experts")))

    def _given(self, axis: str) -> int:
        return (getattr(self, axis) if axis in PLAN_AXES else self.axes.get(axis)) or 1

    def check_mesh(self) -> None:
        """Raise `InputError` if the layout of experts reaches across `dp_replicate`."""
        if any(axis_of(part) == "dp_replicate" for part in self.split(dividing("experts"))):
            fault = f"ep*etp = {self.ep * self.etp} exceeds the ranks that ZeRO shards over"
            raise InputError("plan, ep", fault, "lower ep or dp_replicate")

    @cached_property
    def data_parallel(self) -> int:
        """Number of ranks that share a batch: the product of the axes that divide it."""
        return self.degree(dividing("batch"))

    @cached_property
    def microbatches(self) -> int:
        """Micro-steps per optimizer step and data-parallel rank."""
        return self.global_batch // (self.microbatch * self.data_parallel)

    @property
    def pipeline(self) -> str:
        """The schedule that runs: several chunks of a 1F1B stage are interleaved."""
        if self.pp == 1:
            return "1f1b"
        return "interleaved" if self.schedule == "1f1b" and self.interleave > 1 else self.schedule

    @cached_property
    def chunks(self) -> int:
        """Number of chunks of a stage."""
        entry = schedules.listed(self.pipeline)
        if self.pp == 1 or entry is None:
            return self.passes().chunks
        return entry.chunks or self.interleave

    @cached_property
    def pieces(self) -> Places:
        """Which piece of the model each chunk of each stage is."""
        return schedules.pieces(self.pipeline, self.pp, self.microbatches, self.chunks)

    @cached_property
    def cuts(self) -> int:
        """Number of pieces into which the model is cut."""
        return 1 + max(max(piece) for piece in self.pieces)

    def passes(self) -> Schedule:
        """Return the schedule of the plan's passes. Raises `InputError` if sizes do not suit."""
        name, microbatches = self.pipeline, self.microbatches // self.drains
        listed = schedules.listed(name)
        fixed = listed.chunks if listed else 1
        order = schedules.schedule(name, self.pp, microbatches, fixed or self.interleave)
        if self.versions(0):
            return schedules.undrained(name, self.pp, microbatches)
        if self.overlap_experts:
            from sim.parallel.overlapped_passes import overlap_forward_backward

            order = overlap_forward_backward(order)
        elif self.overlap_experts is False:
            order = replace(order, pairs=())
        return order.in_a_row(self.drains)

    def versions(self, stage: int) -> int:
        """Return the number of versions of its weights that a stage keeps; 0 if the pipeline drains
        between steps, so that one version is enough."""
        return self._versions[stage] if self._versions else 0

    @cached_property
    def _versions(self) -> list[int]:
        entry = schedules.listed(self.pipeline)
        kept = entry and entry.versions
        return [kept(stage, self.pp, self.microbatches) for stage in range(self.pp)] if kept else []


@dataclass(frozen=True)
class EffectivePlan:
    """A plan, its model, its stack and its device, and the choices that follow from them."""

    model: Model
    plan: Plan
    stack: Stack
    device: Device

    @property
    def user_buffers(self) -> bool:
        """Whether tensor-parallel collectives run in pieces beside products; with adapters only if
        the plan says so (Megatron-Bridge's recipes of LoRA: tp_comm_overlap = False)."""
        if self.plan.tp_comm_overlap is not None:
            return self.plan.tp_comm_overlap
        return self.stack.fusion.user_buffers and self.plan.lora is None

    @property
    def dispatcher(self) -> Dispatcher:
        """How tokens reach experts."""
        return self.plan.dispatcher or self.stack.dispatcher

    @cached_property
    def overlaps_shared(self) -> bool:
        """Whether shared experts run beside the all-to-alls of tokens."""
        if self.plan.overlap_shared is not None:
            return self.plan.overlap_shared
        offered = self.stack.overlap_shared and self.dispatcher == "flat"
        return offered and not any(self.plan.passes().pairs)

    @property
    def overlaps_gradients(self) -> bool:
        """Whether gradients are reduced beside the last backward pass."""
        return self.stack.overlap_gradients and (self.stack.overlap_sharded or not self.plan.zero)

    @property
    def overlaps_gather(self) -> bool:
        """Whether ZeRO-1 and 2 gather updated weights beside the next step's first passes.
        Pipelines that do not drain never do, as their next passes still use an older version."""
        return self.stack.overlap_gather and not self.plan.versions(0)

    @cached_property
    def kernels_on(self) -> Device:
        """The device without the SMs that the stack sets aside."""
        return self.device.without(self.stack.fusion.reserved_sms)

    @property
    def host(self) -> Stack:
        """The stack as it launches passes."""
        paced = self.stack.paced(self.device.host)
        return paced.in_graph if WHOLE in self.plan.cuda_graph else paced

    @property
    def host_ranks(self) -> int:
        """Ranks that each offload a share of a layer's activations to their hosts."""
        return self.plan.tp if self.stack.checkpointing.on_host else 1

    @property
    def context(self) -> Context:
        """How attention reaches the rest of its sequence along `cp`."""
        return self.plan.context or self.stack.context

    @property
    def sequence_axes(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The axes that divide the sequence: axes that share keys, and axes that exchange heads."""
        heads = {"ulysses", *(("cp",) if self.context == "ulysses" else ())}
        axes = dividing("sequence")
        return tuple(a for a in axes if a not in heads), tuple(a for a in axes if a in heads)

    @property
    def kept_precision(self) -> Precision:
        """The precision of weights and gradients between passes. FSDP keeps shards of parameters in
        fp32, and casts them when they are gathered (`MixedPrecision.param_dtype`)."""
        cast = self.plan.zero >= 3 and self.stack.sharding != "in-place"
        return "fp32" if cast else self.plan.precision

    @property
    def reshard(self) -> bool | Literal["near"]:
        """Whether gathered weights are freed after a forward pass: not in pipelines, unless the
        plan says so (pytorch/torchtitan, models/llama3/infra/parallelize.py, apply_fsdp:
        `reshard_after_forward = not pp_enabled`)."""
        return self.plan.pp == 1 if self.plan.reshard is None else self.plan.reshard

    @property
    def no_sync(self) -> bool:
        """Whether sharded gradients are reduced after the last micro-step only: in pipelines,
        unless the plan says otherwise (torch/distributed/pipelining/stage.py,
        backward_maybe_with_nosync: `set_requires_gradient_sync(False)`)."""
        return self._sums_up if self.plan.no_sync is None else self.plan.no_sync

    @property
    def reduces_last(self) -> bool:
        """Whether sharded gradients are reduced unit by unit after a pass instead of beside it.
        Torch's pipelines ask FSDP to reduce once a stage has no pass left
        (torch/distributed/pipelining/stage.py, `perform_reduce_grad`)."""
        return self._sums_up and self.no_sync

    @property
    def _sums_up(self) -> bool:
        return self.plan.pp > 1 and self.plan.zero >= 2

    @property
    def prefetch(self) -> int:
        """Units of ZeRO-3 that are gathered ahead of the unit that computes."""
        return self.stack.prefetch if self.plan.prefetch is None else self.plan.prefetch
