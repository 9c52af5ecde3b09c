"""Attention on one rank: projections, rotary embedding, and the core softmax(Q K') V."""

from dataclasses import replace

from sim.config.errors import InputError
from sim.model import context_parallel, latent_attention
from sim.model.execution import Execution
from sim.model.kernels import Gemm, Item, MemoryBound
from sim.model.operators import MASK, Operator, normalise
from sim.model.tensor_parallel import column_linear, row_linear

CORE = "attention core"


def operators(run: Execution, *, normed: bool = False) -> tuple[Operator, ...]:
    """Projection in, arrangement, norms, rotation, core and projection out; right behind a norm
    where `normed`."""
    if run.model.latent:
        return (*latent_attention.project_in(run), core(run), project_out(run))
    before = [one for one in (project_in(run, normed=normed), arrange(run)) if one.name]
    norms = normalise_heads(run, before[-1].name)
    after = [one for one in (rotate(run), *_core_of_heads(run)) if one.name]
    after[0] = replace(after[0], reads=tuple(norm.name for norm in norms))
    return (*before, *norms, *after, project_out(run))


def _core_of_heads(run: Execution) -> tuple[Operator, ...]:
    """The core, behind copies of keys and values for all heads of queries where these are made:
    each is read once and written for every head, backward summed over them (torchtitan,
    repeat_kv in models/llama/model.py)."""
    if not run.fusion.repeated_keys or run.model.kv_heads == run.model.heads:
        return (core(run),)
    wide = replace(run, model=replace(run.model, kv_heads=run.model.heads))
    few, many = (one.rows * (one.kv_width + one.value_width) for one in (run, wide))
    launches = 1 if run.fusion.compiled else 2
    moved = float((few + many) * run.width)
    copies = Operator(
        name="repeat keys",
        forward=(MemoryBound(name="repeat keys", bytes=moved, launches=launches),),
        input_gradient=(MemoryBound(name="repeat keys grad", bytes=moved, launches=launches),),
        inputs=float(few * run.width),
    )
    reads = tuple(one for one in (rotate(run).name, copies.name) if one)
    return (copies, replace(core(wide), reads=reads))


def project_in(run: Execution, *, normed: bool = False) -> Operator:
    """Q, K and V of the rank's heads, from the whole hidden width."""
    widths = (run.query_width, run.kv_width, run.value_width)
    packed = (sum(widths),) if run.fusion.packed_projections else widths
    return column_linear(run, "qkv", packed, bias=run.model.biased("qkv"), normed=normed)


def project_out(run: Execution) -> Operator:
    """From the core's output, which a recipe may have kept in a format of its own."""
    biased = run.model.biased("attention output")
    projection = row_linear(run, "attention output", run.output_width, bias=biased)
    if not (run.recipe and run.recipe.core):
        return projection
    kept = run.rows * run.output_width * run.recipe.core
    return replace(projection, saved_for_weights=kept, made=0.0, casts=False)


def normalise_heads(run: Execution, projection: str) -> tuple[Operator, ...]:
    """QK norm of what a projection made: the heads of Q and K one by one, all with the same gain
    (Dehghani et al. 2023, section 2; Qwen3's has one a layer), or without any; or all heads of a
    token together, each column with its own (OLMo et al. 2024, arXiv 2501.00656, section 3.2).
    Raises `InputError` where ranks have some heads each of what is normalised together."""
    if run.model.qk_norm == "none":
        return ()
    whole = run.model.qk_norm == "whole"
    if whole and run.tp > 1:
        what = f"tp = {run.tp}: norms over the heads of all ranks are not known"
        raise InputError("plan", what, "set tp = 1")
    heads = {"q norm": run.heads, "k norm": run.kv_heads}
    norms = (
        normalise(
            run,
            name,
            run.rows * (1 if whole else count),
            width=run.model.head * (count if whole else 1),
            residual=False,
        )
        for name, count in heads.items()
    )
    gains = run.model.qk_norm != "l2"
    return tuple(
        replace(norm, reads=(projection,), parameters=norm.parameters * gains) for norm in norms
    )


def rotate(run: Execution) -> Operator:
    """Rotary embedding of Q and K (Su et al. 2021): forward and backward are the same rotation.

    Fused: read and write each once. Otherwise x cos + rotate_half(x) sin for each of Q and K: two
    products (2 passes each), a sum (3), a negation of half (1) and a concatenation (2), ten passes
    in five kernels. As complex numbers: a cast to fp32 (3), a product (4) and a cast back (3), ten
    passes in three kernels, which inductor does not join (pytorch/torchtitan issue 15).
    """
    if run.model.positions != "rotary":
        return Operator()
    elements = run.rows * (run.query_width + run.kv_width)
    if run.fusion.complex_rotary:
        passes, launches = 10, 6
    elif run.fused("rotary"):
        passes, launches = 2, 1 if run.fusion.compiled else 2
    else:
        passes, launches = 10, 10
    kernel = MemoryBound(
        name="rotary", bytes=float(passes * elements * run.width), launches=launches
    )
    return Operator(
        name="rotary", forward=(kernel,), input_gradient=(kernel,), inputs=inputs_saved(run)
    )


# Kernels that derive sequence lengths from a mask: two fills, two sums, two cumulative sums of two
# kernels each (nanotron, models/llama.py, CoreAttention.forward).
_MASK_LAUNCHES = 8


def arrange(run: Execution) -> Operator:
    """Copies of Q, K, V into their own tensors and of K, V into one (nanotron, models/llama.py)."""
    if not run.fusion.layout_copies:
        return _copied_queries(run)
    copied = run.mixed + run.rows * 2 * (run.kv_width + run.value_width)
    size = 2.0 * copied * run.width
    return Operator(
        name="arrange heads",
        forward=(MemoryBound(name="arrange heads", bytes=size, launches=3 + _MASK_LAUNCHES),),
        input_gradient=(MemoryBound(name="arrange heads grad", bytes=size, launches=3),),
        inputs=inputs_saved(run),
    )


def _copied_queries(run: Execution) -> Operator:
    """Q reshaped to its heads, which is a copy where each group of them lies beside its key
    (Megatron-LM, megatron/core/transformer/attention.py, get_query_key_value_tensors), and K made
    contiguous for its norm (TransformerEngine, ops/basic/rmsnorm.py). Backward all have come apart.
    """
    if not run.fusion.query_copies or run.kv_heads in (1, run.heads):
        return Operator()
    keys = run.kv_width if run.model.qk_norm != "none" else 0
    elements, name = float(run.rows * (run.query_width + keys)), "query copies"
    moved, launches = 2 * elements * run.width, 1 + (keys > 0)
    kernel = MemoryBound(name=name, bytes=moved, strided=elements, launches=launches)
    return Operator(name=name, forward=(kernel,), inputs=inputs_saved(run))


def core(run: Execution) -> Operator:
    """softmax(Q K' / sqrt(d)) V; keeps Q, K, V and what its kernels need besides."""
    kernels = standard_core(run) if run.model.attention == "standard" else flash_core(run)
    return with_sinks(run, kernels) if run.model.sinks else kernels


def with_sinks(run: Execution, core: Operator) -> Operator:
    """A learned logit a head joins the softmax's sum (OpenAI 2025, gpt-oss model card, section 2):
    nothing to the kernels; its gradient sums dO O and the sums of exponentials over all queries."""
    gradient = MemoryBound(name="sinks grad", bytes=float(2 * 4 * run.rows * run.heads), launches=2)
    return replace(
        core,
        input_gradient=(*core.input_gradient, gradient),
        parameters=float(run.heads),
    )


def inputs_saved(run: Execution) -> float:
    """Bytes of Q, K and V."""
    return float(run.mixed * run.width)


def standard_core(run: Execution) -> Operator:
    """Scores kept in memory: two batched products around softmax and dropout.

    Keeps the softmax output (2 a s^2 b bytes in half precision), the dropout mask (a s^2 b) and
    its output (2 a s^2 b): the 5 a s^2 b of Korthikanti et al. 2022, section 4.1.
    """
    model, width = run.model, run.width
    scores = run.microbatch * run.heads * run.seq * run.keys
    dropped = scores * MASK + scores * width if model.dropout else 0
    return Operator(
        name=CORE,
        modules=("core_attn",),
        forward=(
            _product(run, "scores", run.seq, run.keys, model.head),
            *_biased(run, scores),
            *_softmax(run, scores),
            *_dropout(run, scores, "attention dropout", drawn=scores),
            _product(run, "attention over values", run.seq, model.value_head, run.keys),
            MemoryBound(name="merge heads", bytes=2.0 * run.rows * run.output_width * width),
        ),
        input_gradient=_standard_backward(run, scores),
        inputs=inputs_saved(run),
        saved=inputs_saved(run) + scores * width + dropped,
        made=float(scores * width + dropped),
        transient=2.0 * scores * width,
    )


def _product(run: Execution, name: str, m: int, n: int, k: int) -> Gemm:
    """One of the six batched products."""
    batch = run.microbatch * run.heads
    return Gemm(name=name, m=m, n=n, k=k, batch=batch, precision=run.precision)


def _biased(run: Execution, scores: int, suffix: str = "") -> tuple[Item, ...]:
    """Scores and the biases of relative positions: both read and one written; backward the
    gradients of the scores are added to those that later layers left for the biases (transformers,
    modeling_t5.py, T5Attention.forward: `scores += position_bias`). Other sequences have none."""
    if run.model.positions != "relative" or run.memory:
        return ()
    return (MemoryBound(name=f"position bias{suffix}", bytes=float(3 * scores * run.width)),)


def _softmax(run: Execution, scores: int) -> tuple[Item, ...]:
    """Megatron-LM, megatron/model/fused_softmax.py."""
    passes, launches = _softmax_passes(run, backward=False)
    return (
        MemoryBound(name="softmax", bytes=float(passes * scores * run.width), launches=launches),
    )


def _softmax_passes(run: Execution, *, backward: bool) -> tuple[int, int]:
    """Passes over half-precision scores, and kernels, of scale, mask and softmax.

    Fused, unfused, and Megatron's fall-back for shapes that its kernel does not take, which works
    on an fp32 copy: cast, scale, mask, softmax, cast. With an added mask: scale (2, back 2),
    torch.where of causal ones (2; zeros 1 and where 3), the sum with the mask (2), softmax (2; 3).
    """
    if _fused_softmax(run):
        return (3, 1) if backward else (2, 1)
    if run.fusion.masked_softmax and run.width == 2:
        return (20, 5) if backward else (18, 5)
    if run.fusion.added_mask:
        where = run.model.causal
        return (5 + 4 * where, 2 + 2 * where) if backward else (6 + 2 * where, 3 + where)
    return (7, 3) if backward else (6, 3)


def _fused_softmax(run: Execution) -> bool:
    """Whether the fused kernel takes these scores: 4 | b a and s <= 2048.

    Megatron-LM, megatron/model/fused_softmax.py, is_kernel_available.
    """
    if run.fusion.compiled:
        return True
    fits = run.microbatch * run.heads % 4 == 0 and run.seq <= 2048
    return run.fusion.masked_softmax and fits


def _dropout(run: Execution, elements: int, name: str, *, drawn: int = 0) -> tuple[Item, ...]:
    if not run.model.dropout:
        return ()
    moved = float(elements * (2 * run.width + MASK))
    return (MemoryBound(name=name, bytes=moved, randoms=float(drawn)),)


def _standard_backward(run: Execution, scores: int) -> tuple[Item, ...]:
    seq, keys, head, width = run.seq, run.keys, run.model.head, run.width
    passes, launches = _softmax_passes(run, backward=True)
    return (
        MemoryBound(name="merge heads grad", bytes=2.0 * run.rows * run.output_width * width),
        _product(run, "attention over values dgrad", seq, keys, run.model.value_head),
        _product(run, "values grad", keys, run.model.value_head, seq),
        *_dropout(run, scores, "attention dropout grad"),
        MemoryBound(
            name="softmax grad",
            bytes=float(passes * scores * width),
            launches=launches,
        ),
        *_biased(run, scores, " grad"),
        _product(run, "queries grad", seq, head, keys),
        _product(run, "keys grad", keys, head, seq),
        # The scale of Q K' on dQ and dK, then one tensor of dQ, dK, dV again.
        MemoryBound(name="join qkv grad", bytes=float(4 * run.mixed * width), launches=3),
    )


def _own_format(run: Execution) -> tuple[Item, ...]:
    """The output into the format that a recipe has for it, or back."""
    if not (run.recipe and run.recipe.core):
        return ()
    elements = run.rows * run.output_width
    return (MemoryBound(name="output format", bytes=elements * (run.width + run.recipe.core)),)


def _in_low(run: Execution, core: Operator) -> Operator:
    """The core in the recipe's format (TransformerEngine, dot_product_attention/backends.py,
    FusedAttnFunc): casts of Q, K, V and of the output's gradient in front of its kernels, those of
    the output and of the gradients back behind. The backward pass finds Q, K, V and the output as
    they were cast."""
    recipe = run.recipe
    if recipe is None or not recipe.attention:
        return core
    output, found = run.rows * run.output_width, recipe.amax > 0
    once, back = run.width * (1 + found) + run.core_width, run.width + run.core_width
    launches = 1 + recipe.amax
    kept = (run.mixed + output) * run.core_width + core.made
    return replace(
        core,
        forward=(
            MemoryBound(name="attention input cast", bytes=run.mixed * once, launches=launches),
            *core.forward,
            MemoryBound(name="attention output", bytes=output * back),
        ),
        input_gradient=(
            MemoryBound(name="attention grad cast", bytes=output * once, launches=launches),
            *core.input_gradient,
            MemoryBound(name="attention input grad", bytes=run.mixed * back),
        ),
        saved=kept,
        made=kept,
        casts=True,
    )


def flash_core(run: Execution) -> Operator:
    """One kernel that keeps no scores, only a log-sum-exp in fp32 per query and head.

    The output is kept once, as the input of the projection behind (Dao et al. 2022), unless that
    keeps none or a cast copy of its own. The gradients of Q, K and V are joined for a projection
    that they share; latents share none.
    """
    statistics = 4.0 * run.rows * run.heads
    own = _own_format(run)
    join = MemoryBound(name="join qkv grad", bytes=2.0 * run.mixed * run.width)
    keys = run.kv_width + run.value_width
    output = 0 if run.shares_output else run.rows * run.output_width * run.width
    core = Operator(
        name=CORE,
        modules=("core_attn",),
        forward=(*context_parallel.forward(run), *own),
        input_gradient=(
            *own,
            *context_parallel.backward(run),
            *(() if run.fusion.compiled or run.model.latent else (join,)),
        ),
        inputs=inputs_saved(run),
        saved=inputs_saved(run) + statistics + output,
        made=statistics + output,
        # dQ is summed in fp32; dK and dV in the kernel's own precision.
        transient=float(run.rows * (4 * run.query_width + keys * run.width)),
    )
    return _in_low(run, core)
