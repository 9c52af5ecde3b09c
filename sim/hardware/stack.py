"""A software stack: its fused operators, its overlaps, and the time of its host code."""

from collections.abc import Mapping
from dataclasses import field, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from sim.config import catalog
from sim.config.checked import Named
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.units import Bytes, Ge, Le, Seconds
from sim.model.checkpointing import Checkpointing
from sim.model.fusion import Context, Dispatcher, Fusion, Gradients
from sim.model.kernels import OperatorClass, Precision, weight_width
from sim.program.program import Style

if TYPE_CHECKING:
    from sim.model.precision import Recipe


_OTHERS = "more"  # stands for all values that are not listed: sizes above 1, lists of modules
_MONTH = len("2025-07")


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """The content of `topologies/frameworks/NAME.toml`.

    `since` gives the month and the release that brought each value of a choice. A choice is a
    choice of `sim plan --only`, or `interleaving`, or `argument`. `tried` lists the values of a
    choice that a search tries where the user does not name values.
    """

    name: str = ""
    since: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    tried: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def lacks(self, choice: str, value: str, released: str = "") -> str:
        """Why a release (the latest, if none is given) lacks a value of a choice; empty where the
        release has the value, or where this is unknown.

        >>> own = Capabilities(name="X", since={"tp": {"1": "2020-01", "more": "2021-05, 2.0"}})
        >>> own.lacks("tp", "8", "2020-07")
        'X has tp = 8 since 2021-05, 2.0'
        >>> own.lacks("tp", "8"), own.lacks("tp", "1", "2020-07"), own.lacks("pp", "2")
        ('', '', '')
        """
        known = self.since.get(choice)
        if known is None:
            return ""
        since = known.get(value) or known.get(_OTHERS)
        if since is None:
            return f"{self.name} has no {choice} = {value}"
        late = bool(released) and since[:_MONTH] > released
        return f"{self.name} has {choice} = {value} since {since}" if late else ""


def capabilities_of(name: str, *, where: str) -> Capabilities:
    """The capabilities of a framework; empty capabilities without a name. Raises `InputError` for
    an unknown name."""
    return (
        catalog.load("topologies/frameworks", name, Capabilities, where=where)
        if name
        else Capabilities()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocator:
    """The memory of a software stack beside the tensors that autograd keeps.

    With `half_gradients`, gradients in the weights' precision stay beside their fp32 buffer: always
    under data parallelism (torch DDP's buckets), otherwise until the backward pass has ended.
    Tensor-parallel ranks gather into `gather_buffers` persistent buffers, each as large as the
    input of a layer. With `gather_copies`, ZeRO-1 gathers the updated weights through flat copies.
    With `keeps_outputs`, a stage's output lives until its backward pass. The host can be
    `run_ahead` kernel launches ahead of the device (CUDA's queue holds 1024). Tensors that a
    communication stream reads are freed when the device has read them (torch `record_stream`), so
    the tensors of all queued collectives are alive at once; `run_ahead` is 0 where communication
    does not record streams. With `lazy_state`, the optimizer's first step creates its moments in
    blocks that activations left; the second step must reserve blocks for activations. With
    `flat_step`, the optimizer's step copies all gradients into flat buffers, in the weights'
    precision, and its share of the gradients into fp32. No block that activations left is as large,
    and torch never joins blocks of different requests, so it reserves further blocks. The software
    `reports` the peak of its tensors or of torch's reserved memory. The `workspace` is the bytes of
    cuBLAS's workspaces for the forward and the backward thread together (torch: 32 MiB each on
    Hopper).
    """

    half_gradients: bool = False
    gather_buffers: int = 0
    gather_copies: bool = False
    keeps_outputs: bool = False
    run_ahead: int = 0
    lazy_state: bool = True
    flat_step: bool = False
    reports: Literal["tensors", "reserved"] = "tensors"
    workspace: Bytes = 2 * 32 * 2.0**20


Count = Annotated[int, Ge(1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """The settings of a script that comes with the software, named as columns of measured rows.

    `vocab` is the size of its tokenizer's vocabulary, `documents` the mean length of the documents
    that its data set packs into a sequence. `seq`, `microbatch`, `global_batch`, `ep`, `zero`,
    `no_sync`, `recompute`, `context`, `moments`, `cuda_graph` and `tp_comm_overlap` are as in a
    plan. `recompute_modules` names the modules that `selective` runs again, `fp8_recipe` is its
    recipe of eight bits. The output layer's weight gradients wait for `wgrad_deferral_limit`
    microbatches. `routing` is the law by which a benchmark's gate spreads tokens over experts.
    """

    vocab: Count | None = None
    documents: Count | None = None
    seq: Count | None = None
    microbatch: Count | None = None
    global_batch: Count | None = None
    ep: Count | None = None
    zero: Literal[0, 1, 2, 3] | None = None
    no_sync: bool | None = None
    recompute: Literal["none", "selective", "full"] | None = None
    recompute_modules: str | None = None
    context: Context | None = None
    cuda_graph: str | None = None
    tp_comm_overlap: bool | None = None
    wgrad_deferral_limit: Count | None = None
    moments: str | None = None
    fp8_recipe: str | Mapping[str, Any] | None = None
    routing: Literal["balanced", "round-robin"] | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that the script states."""
        every = {field.name: getattr(self, field.name) for field in fields(self)}
        return {column: value for column, value in every.items() if value is not None}


# The recipes of NVIDIA's own runs of TransformerEngine (Megatron-Bridge, scripts/performance).
_RECIPES = {"fp8": "current-scaling", "fp4": "nvfp4"}

# The buffer that replaces a buffer, for gradients in fp32 (True) or in the weights' type.
_BUFFERS: Mapping[bool, Mapping[Gradients, Gradients]] = {
    True: {"fused-buffer": "fused", "buffer": "fp32-buffer"},
    False: {"fused": "fused-buffer", "fp32-buffer": "buffer"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack(metaclass=Named):
    """The content of `topologies/stacks/NAME.toml`; one description for all runs of that software.

    The stack has the capabilities (`Capabilities`) of its `framework` in the month in
    which this software was `released` (year-month; empty: the latest release).

    Host: `launch_forward` and `launch_backward` are the host's seconds for an operator of one
    launch (python and dispatcher forward, autograd's node backward). `operator_forward` and
    `operator_backward` are additional seconds by class of operator (a module's python, its casts'
    buffers, an autograd function in python). Their defaults hold for eager modules in traces of
    H800 and V100 (docs/kernels.md, The host). `launch_collective` is per collective, `launch_graph`
    per CUDA graph, `launch_grouped` is added for each matrix of a grouped product. `layer_forward`
    and `layer_backward` are seconds per layer and pass beyond the seconds of operators (FSDP's and
    ZeRO's hooks, garbage collection). `step_host` is per step, before the first launch. A
    `blocking` host waits for every kernel of a pass (CUDA_LAUNCH_BLOCKING=1), so its seconds and
    the device's add up. `graph` says that a step is one CUDA graph, which `sim measure` captures.

    Attention: `attention` names the fused kernels that the stack offers, best first; the first
    kernel for which the device has rates runs. Without fused kernels, every model stores its
    scores. `context` is the way of context parallelism (`sim.model.context_parallel`).
    `balanced_context` says whether each rank has two shares of a causal sequence, one from either
    end.

    Pipeline: `pipeline_exchange` is how neighbouring stages communicate (`sim.program.program`).
    `exchange_sync` says whether the host waits until a blocking exchange has ended
    (`torch.cuda.synchronize`). `exchange_group` says whether messages use a communicator of two
    stages or of all stages (`Exchange.among`). `scatter_gather` says whether each tensor-parallel
    peer sends a share, which the receivers gather (Narayanan et al. 2021, section 4.1). `balance`
    is how layers that do not divide evenly are spread over stages, `pipeline_zero` the highest ZeRO
    stage that the software runs in a pipeline.

    Experts: `dispatcher` is how tokens reach experts unless a plan says otherwise. `overlap_shared`
    says that shared experts run beside a flat dispatcher if no other pass does.

    Data parallelism: `overlap_gradients` says whether gradients are reduced beside the last
    backward pass, in buckets of `bucket` bytes (`first_bucket` for the first). `overlap_sharded`
    says whether this also holds where ZeRO shards states. Without overlap one call reduces
    gradients afterwards (ZeRO-2: a call after each layer, not overlapped). For its reduction, each
    gradient is read and written `bucket_copies` times (into a bucket, divided by the ranks, back).
    `fp32_reduction` reduces in fp32 whatever the weights are. `zero_reduce` is how ZeRO-1 sums
    gradients; `zero_gather` says whether its updated weights are gathered, or broadcast by one
    owner after the other; `overlap_gather` hides their all-gather behind the next forward pass.

    ZeRO-3: `prefetch` is how many units are gathered ahead of the unit that computes. `regathers`
    says whether a recomputed unit is gathered for its recomputation and again for its backward
    pass. With `root_unit`, embedding and head are one unit, which stays whole from forward to
    backward; with `keeps_last`, the last layer stays whole, too. `sharding` says which copies are
    made of whole units. With `in-place` units are gathered and reduced without copies. With `flat`
    parameters, gradients are joined (FSDP1: autograd's backward of `torch.split`). With
    `per-parameter`, each weight is copied out of the gathered buffer, and each gradient into the
    buffer that is reduced (FSDP2: `split_with_sizes_copy` and `chunk_cat` in _fsdp_collectives.py).
    `reduce_stream` says that gradients and weights use different communicators.

    Optimizer: `fused_optimizer` is one multi-tensor kernel instead of one per operation (and, with
    `optimizer_by_tensor`, for each parameter tensor). `fused_host_optimizer` says this of an
    optimizer on the host's processors (DeepSpeed's cpu_adam; torch.optim's is not fused, and five
    to seven times slower: deepspeed.ai, tutorial ZeRO-Offload). `clip` says whether the gradient
    norm is clipped; with `post_validation`, stages whose backward passes are split do not wait for
    the norm (Qi et al. 2023, arXiv 2401.10241, section 4). `optimizer_launch` is the host's seconds
    per launch of the optimizer. With `reads_overflow`, the host looks for overflows in fp16
    gradients tensor by tensor. `master_weights` says whether 16-bit weights have an fp32 copy.

    `recipes` names the recipe (`sim.model.precision`) of a precision, or the stack's own version of
    a recipe; `precisions` names another stack that runs a precision. `checkpointing` is the meaning
    of "selective" recomputation, `allocator` memory beyond the tensors that autograd keeps.
    `scripts` come with the software, by task, model, cluster or "MODEL on CLUSTER" ("*": always).
    """

    name: str
    framework: str = ""
    released: str = ""
    fusion: Fusion
    launch_forward: Seconds = 17e-6
    launch_backward: Seconds = 17e-6
    operator_forward: Mapping[OperatorClass, Seconds] = field(
        default_factory=lambda: {"product": 10e-6, "low_product": 60e-6, "attention": 40e-6}
    )
    operator_backward: Mapping[OperatorClass, Seconds] = field(
        default_factory=lambda: {"product": 10e-6, "low_product": 60e-6, "attention": 40e-6}
    )
    launch_collective: Seconds = 30e-6
    # NVIDIA, "Constant-time launch for straight-line CUDA graphs", 2024: 2.5 us since CUDA 12.6.
    launch_graph: Seconds = 2.5e-6
    launch_grouped: Seconds = 0.0
    layer_forward: Seconds = 0.0
    layer_backward: Seconds = 0.0
    step_host: Seconds = 0.0
    blocking: bool = False
    graph: bool = False
    attention: tuple[str, ...] = ("flash2",)
    context: Context = "ring"
    balanced_context: bool = True
    pipeline_exchange: Style = "batched"
    exchange_sync: bool = False
    exchange_group: Literal["pair", "pipeline"] = "pair"
    scatter_gather: bool = False
    pipeline_zero: Annotated[int, Ge(0), Le(3)] = 3
    dispatcher: Dispatcher = "flat"
    overlap_shared: bool = False
    balance: Literal["even", "front", "cost", "quota"] = "even"
    overlap_gradients: bool = False
    overlap_sharded: bool = True
    first_bucket: Bytes = 2.0**20
    bucket: Bytes = 25 * 2.0**20
    bucket_copies: int = 0
    fp32_reduction: bool = False
    zero_reduce: Literal["all_reduce", "reduce_scatter"] = "reduce_scatter"
    zero_gather: Literal["all_gather", "broadcast"] = "all_gather"
    overlap_gather: bool = False
    prefetch: Annotated[int, Ge(0)] = 1
    regathers: bool = False
    root_unit: bool = False
    keeps_last: bool = False
    sharding: Literal["in-place", "flat", "per-parameter"] = "in-place"
    reduce_stream: bool = False
    fused_optimizer: bool = True
    optimizer_by_tensor: bool = False
    fused_host_optimizer: bool = True
    clip: bool = True
    post_validation: bool = False
    optimizer_launch: Seconds = 5e-6
    reads_overflow: bool = False
    master_weights: bool = True
    precisions: Mapping[str, str] = field(default_factory=dict)
    recipes: Mapping[str, str] = field(default_factory=dict)
    checkpointing: Checkpointing = field(default_factory=Checkpointing)
    allocator: Allocator = field(default_factory=Allocator)
    scripts: Mapping[str, Script] = field(default_factory=dict)

    def scripted(self, *names: str) -> dict[str, Any]:
        """The settings of the scripts with these `names` (of a task, a model, a cluster, the model
        on the cluster), by column of a measured row. Later names override earlier names."""
        found = (self.scripts[name] for name in ("*", *names) if name in self.scripts)
        return {column: value for script in found for column, value in script.settings.items()}

    def running(self, precision: Precision, *, where: str) -> "Stack":
        """The stack that runs a precision. Raises `InputError` for a file that does not exist."""
        named = self.precisions.get(precision)
        return self if named is None else load(named, where=where)

    def recipe(
        self, precision: Precision, named: str | Mapping[str, Any], *, where: str
    ) -> "Recipe | None":
        """The recipe of a plan; None where products run in the precision of activations.

        Raises `InputError` for an unknown recipe, or a recipe of another precision.
        """
        known = {**_RECIPES, **self.recipes}
        changes = {} if isinstance(named, str) else {k: v for k, v in named.items() if k != "like"}
        name = named if isinstance(named, str) else named.get("like", precision)
        if not isinstance(name, str):
            raise InputError(where, "like is not a text", 'write like = "NAME"')
        if not name and precision not in known:
            return None
        name = known.get(name or precision, name)
        from sim.model import precision as recipes

        found = recipes.load(name, changes, where=where)
        if found.precision != precision:
            fault = f"recipe {name!r} is for {found.precision}, but precision = {precision!r}"
            raise InputError(where, fault, f"set precision = {found.precision!r}")
        return found

    @property
    def in_graph(self) -> "Stack":
        """This stack with all passes of a step in one CUDA graph: the host launches none.

        Where the host otherwise reads how many tokens experts get, only products that read these
        numbers themselves can be captured. They also fuse the operators between them (Megatron-LM,
        moe/experts.py, `use_transformer_engine_op_fuser`, which paged stashing needs;
        TransformerEngine, ops/fused/forward_grouped_mlp.py,
        `ForwardGroupedMLP_CuTeGEMMSwiGLU_MXFP8`, and its backward).
        """
        told = self.fusion.host_counts
        fusion = replace(
            self.fusion, host_counts=False, epilogues=told, grouped=told or self.fusion.grouped
        )
        return replace(self.paced(0.0), fusion=fusion)

    def paced(self, times: float) -> "Stack":
        """This stack on a host that takes `times` as long for passes."""
        if times == 1.0:
            return self
        return replace(
            self,
            launch_forward=times * self.launch_forward,
            launch_backward=times * self.launch_backward,
            launch_collective=times * self.launch_collective,
            operator_forward={k: times * s for k, s in self.operator_forward.items()},
            operator_backward={k: times * s for k, s in self.operator_backward.items()},
            launch_graph=times * self.launch_graph,
            launch_grouped=times * self.launch_grouped,
            layer_forward=times * self.layer_forward,
            layer_backward=times * self.layer_backward,
        )

    def reducing(self, in_fp32: bool | None) -> "Stack":
        """This stack with gradients added up and summed in fp32, or in the type of the weights."""
        if in_fp32 is None:
            return self
        gradients = self.fusion.gradients
        fusion = replace(self.fusion, gradients=_BUFFERS[in_fp32].get(gradients, gradients))
        return replace(self, fp32_reduction=in_fp32, fusion=fusion)

    def weight_bytes(self, precision: Precision) -> int:
        """Bytes of a working weight, and of an activation (bf16 in recipes of 8 or 4 bits)."""
        return weight_width(precision)

    def reduced_bytes(self, precision: Precision) -> int:
        """Bytes of a gradient on the network."""
        return 4 if self.fp32_reduction else self.weight_bytes(precision)

    def unsharding_bytes(self, precision: Precision) -> float:
        """Bytes read and written for each gathered parameter before it can be used."""
        return 2.0 * self.weight_bytes(precision) * (self.sharding == "per-parameter")

    def bucket_bytes(self, precision: Precision) -> float:
        """Bytes read and written for each gradient around its reduction in a bucket."""
        return 2.0 * self.reduced_bytes(precision) * self.bucket_copies

    def joining_bytes(self, precision: Precision) -> float:
        """Bytes that ZeRO-2 and 3 read and write for each gradient before it can be reduced: FSDP1
        joins them, casts them, and divides them by about the root of the ranks
        (torch/distributed/fsdp/_runtime_utils.py, `_reduce_grad`)."""
        width, reduced = self.weight_bytes(precision), self.reduced_bytes(precision)
        cast = width + reduced if width != reduced else 0
        sizes = {"in-place": 0.0, "flat": float(2 * width + cast + 2 * reduced)}
        return self.bucket_bytes(precision) + sizes.get(self.sharding, float(width + reduced))

    def shard_bytes(self, precision: Precision, *, later: bool) -> float:
        """Bytes read and written for each reduced gradient of a rank's share: to divide it (FSDP1),
        to cast it to fp32 and, in micro-steps after the first (`later`), to add it to the sum."""
        if self.sharding == "in-place":
            return 0.0
        reduced = self.reduced_bytes(precision)
        divided = 2 * reduced if self.sharding == "flat" else 0
        return float(divided + (reduced + 4 if reduced < 4 else 0) + 12 * later)


def load(name: str, *, where: str = "command line") -> Stack:
    """The stack that a name in `topologies/stacks` (or a path) stands for."""
    return catalog.load("topologies/stacks", name, Stack, where=where)
