"""Attention on one rank: projections, norms and rotary embedding around its core."""

from dataclasses import replace

from sim.config.errors import InputError
from sim.model.attention_core import inputs_saved, standard_core, with_sinks
from sim.model.execution import Execution
from sim.model.kernels import MemoryBound
from sim.model.operators import Operator, normalise
from sim.model.tensor_parallel import column_linear, row_linear


def operators(run: Execution, *, normed: bool = False) -> tuple[Operator, ...]:
    """Return the projection to Q, K and V, their copies, norms and rotation, the core, and the
    output projection. `normed` says that a norm stands right in front of the first projection."""
    if run.shape.latent:
        from sim.model import latent_attention

        return (*latent_attention.project_in(run), *cores(run), project_out(run))
    before = [
        operator for operator in (project_in(run, normed=normed), arrange(run)) if operator.name
    ]
    norms = normalise_heads(run, before[-1].name)
    after = [operator for operator in (rotate(run), *_core_of_heads(run)) if operator.name]
    after[0] = replace(after[0], reads=tuple(norm.name for norm in norms))
    return (*before, *norms, *after, *_gated(run), project_out(run))


def core(run: Execution) -> Operator:
    """Return softmax(Q K' / sqrt(d)) V for head width d; it keeps Q, K, V and its results."""
    if run.shape.attention == "standard":
        kernels = standard_core(run)
    else:
        from sim.model.flash_attention import flash_core

        kernels = flash_core(run)
    return with_sinks(run, kernels) if run.shape.sinks else kernels


def cores(run: Execution) -> tuple[Operator, ...]:
    """Return the core. If both passes share one gather of the other ranks' keys and values, the
    gather is an operator in front of the core."""
    if run.sharding.ring == 1:
        return (core(run),)
    from sim.model.context_parallel import gathered

    ahead = gathered(run)
    return (ahead, replace(core(run), beside=ahead.name)) if ahead.name else (core(run),)


def _gated(run: Execution) -> tuple[Operator, ...]:
    """Return the gate: the core's output times a sigmoid of numbers that the projection makes
    beside Q (Qiu et al. 2025, arXiv 2505.06708). The fused kernel reads two tensors and writes one;
    backward it reads three and writes two. Unfused, sigmoid and product are two kernels."""
    if not run.shape.output_gate:
        return ()
    size, fused = float(run.rows * run.output_width * run.width), run.fusion.compiled
    name, (passes, launches) = "attention gate", (3, 1) if fused else (5, 2)
    return (
        Operator(
            name=name,
            forward=(MemoryBound(name=name, bytes=passes * size, launches=launches),),
            input_gradient=(
                MemoryBound(name=f"{name} grad", bytes=(passes + 3 - fused) * size,
                            launches=2 * launches - 1),
            ),
            inputs=2 * size,
            saved=(1 if fused else 2) * size,
            made=0.0 if fused else size,
            transient=2 * size,
        ),
    )  # fmt: skip


def _core_of_heads(run: Execution) -> tuple[Operator, ...]:
    """Return the core. If the stack repeats keys and values for all heads of queries, copies come
    first. Each key and value is read once and written for every head that shares it; backward the
    gradients of these heads are summed (torchtitan, repeat_kv in models/llama/model.py)."""
    if not run.fusion.repeated_keys or run.model.kv_heads == run.model.heads:
        return cores(run)
    wide = replace(run, model=replace(run.shape, kv_heads=run.shape.heads))
    few, many = (shape.rows * (shape.kv_width + shape.value_width) for shape in (run, wide))
    launches = 1 if run.fusion.compiled else 2
    moved, places = float((few + many) * run.width), float(many * (not run.fusion.compiled))
    copy = MemoryBound(name="repeat keys", bytes=moved, strided=places, launches=launches)
    copies = Operator(
        name="repeat keys",
        forward=(copy,),
        input_gradient=(replace(copy, name="repeat keys grad"),),
        inputs=float(few * run.width),
    )
    reads = tuple(name for name in (rotate(run).name, copies.name) if name)
    first, *rest = cores(wide)
    return (copies, replace(first, reads=reads), *rest)


def project_in(run: Execution, *, normed: bool = False) -> Operator:
    """Return the projection to Q, K and V of the rank's heads, from the whole hidden width."""
    queries = run.query_width + run.output_width * run.shape.output_gate
    widths = (queries, run.kv_width, run.value_width)
    packed = (sum(widths),) if run.fusion.packed_projections else widths
    made = column_linear(run, "qkv", packed, bias=run.shape.biased("qkv"), normed=normed)
    return without_key_bias(run, made)


def without_key_bias(run: Execution, projection: Operator) -> Operator:
    """Return a projection to Q, K and V without the keys' bias, if the model's keys have none."""
    if run.shape.key_bias or not run.shape.biased("qkv"):
        return projection
    return replace(projection, parameters=projection.parameters - run.kv_width)


def project_out(run: Execution) -> Operator:
    """Return the projection of the core's output, which a recipe may keep in its own format."""
    biased = run.shape.biased("attention output")
    projection = row_linear(run, "attention output", run.output_width, bias=biased)
    if not (run.recipe and run.recipe.core):
        return projection
    kept = run.rows * run.output_width * run.recipe.core
    return replace(projection, saved_for_weights=kept, made=0.0, casts=False)


def normalise_heads(run: Execution, projection: str) -> tuple[Operator, ...]:
    """Return the norms of Q and K after the operator `projection` (QK norm). The norm takes each
    head by itself, or with "whole" all heads of a token together. All heads of a layer share one
    gain (Dehghani et al. 2023, section 2; Qwen3). With "heads" each head has a gain and no shift
    (transformers, CohereLayerNorm); with "l2" there is no gain. With "whole" each column has a gain
    (OLMo et al. 2024, arXiv 2501.00656, section 3.2). Raises `InputError` for "whole" under tensor
    parallelism, as each rank has only some of the heads."""
    if run.shape.qk_norm == "none":
        return ()
    whole = run.shape.qk_norm == "whole"
    if whole and run.tp > 1:
        fault = f"tp = {run.tp}: norms over the heads of all ranks are not modelled"
        raise InputError("plan", fault, "set tp = 1")
    each = run.shape.qk_norm == "heads"
    run = replace(run, model=replace(run.shape, norm_weights=1)) if each else run
    heads = {"q norm": run.heads, "k norm": run.kv_heads}
    norms = [
        normalise(
            run,
            name,
            run.rows * (1 if whole else count),
            width=run.shape.head * (count if whole else 1),
            residual=False,
        )
        for name, count in heads.items()
    ]
    gains = heads.values() if each else [run.shape.qk_norm != "l2"] * 2
    return tuple(
        replace(norm, reads=(projection,), parameters=norm.parameters * often)
        for norm, often in zip(norms, gains, strict=True)
    )


def rotate(run: Execution) -> Operator:
    """Return the rotary embedding of Q and K (Su et al. 2021); it is the same forward and backward.
    A fused kernel reads and writes Q and K once. Otherwise x cos + rotate_half(x) sin reads or
    writes x ten times: two products (2 each), a sum (3), a negation of half (1) and a concatenation
    (2). These are five kernels, which compute the address of each element. With complex numbers, a
    cast to fp32 (3), a product (4) and a cast back (3) also read or write the bytes of x ten times.
    Inductor does not join these three kernels (pytorch/torchtitan issue 15)."""
    if run.shape.positions != "rotary":
        return Operator()
    elements = run.rows * (run.query_width + run.kv_width)
    if run.fusion.complex_rotary:
        passes, launches = 10, 6
    elif run.fused("rotary"):
        passes, launches = 2, 1 if run.fusion.compiled else 2
    else:
        passes, launches = 10, 10
    apart = not (run.fusion.complex_rotary or run.fused("rotary"))
    places = 2 + 1 + 0.5 + run.joined  # two products, a sum, a negation of half
    kernel = MemoryBound(
        name="rotary",
        bytes=float(passes * elements * run.width),
        strided=float(apart * places * elements),
        launches=launches,
    )
    return Operator(
        name="rotary", forward=(kernel,), input_gradient=(kernel,), inputs=inputs_saved(run)
    )


# Kernels that derive sequence lengths from a mask: two fills, two sums, two cumulative sums of two
# kernels each (nanotron, models/llama.py, CoreAttention.forward).
_MASK_LAUNCHES = 8


def arrange(run: Execution) -> Operator:
    """Return the copies of Q, K and V into tensors of their own, and of K and V into a joint tensor
    (nanotron, models/llama.py). Without `layout_copies` only queries are copied, if at all."""
    if not run.fusion.layout_copies:
        return _copied_queries(run)
    copied = float(run.mixed + run.rows * 2 * (run.kv_width + run.value_width))
    copies = MemoryBound(name="arrange heads", bytes=2 * copied * run.width, strided=copied)
    return Operator(
        name="arrange heads",
        forward=(replace(copies, launches=3 + _MASK_LAUNCHES),),
        input_gradient=(replace(copies, name="arrange heads grad", launches=3),),
        inputs=inputs_saved(run),
    )


def _copied_queries(run: Execution) -> Operator:
    """Return the copies of Q, and of K where K has a norm. Reshaping Q to its heads copies Q if
    each group of query heads lies beside its key (Megatron-LM,
    megatron/core/transformer/attention.py, get_query_key_value_tensors). K is made contiguous for
    its norm (TransformerEngine, ops/basic/rmsnorm.py). The backward pass copies nothing, as the
    gradients of Q and K are separate tensors."""
    if not run.fusion.query_copies or run.kv_heads in (1, run.heads):
        return Operator()
    keys = run.kv_width if run.shape.qk_norm != "none" else 0
    elements, name = float(run.rows * (run.query_width + keys)), "query copies"
    moved, launches = 2 * elements * run.width, 1 + (keys > 0)
    kernel = MemoryBound(name=name, bytes=moved, strided=elements, launches=launches)
    return Operator(name=name, forward=(kernel,), inputs=inputs_saved(run))
