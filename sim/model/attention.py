"""Attention on one rank: projections, norms and rotary embedding around its core."""

from dataclasses import replace

from sim.config.errors import InputError
from sim.model.attention_core import inputs_saved, standard_core, with_sinks
from sim.model.execution import Execution
from sim.model.kernels import MemoryBound
from sim.model.operators import Operator, normalise
from sim.model.tensor_parallel import column_linear, row_linear


def operators(run: Execution, *, normed: bool = False) -> tuple[Operator, ...]:
    """Projection in, arrangement, norms, rotation, core and projection out; right behind a norm
    where `normed`."""
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
    """softmax(Q K' / sqrt(d)) V; keeps Q, K, V and the results that its kernels need."""
    if run.shape.attention == "standard":
        kernels = standard_core(run)
    else:
        from sim.model.flash_attention import flash_core

        kernels = flash_core(run)
    return with_sinks(run, kernels) if run.shape.sinks else kernels


def cores(run: Execution) -> tuple[Operator, ...]:
    """The core; first the keys and values of other ranks, if both passes share one gathering."""
    if run.sharding.ring == 1:
        return (core(run),)
    from sim.model.context_parallel import gathered

    ahead = gathered(run)
    return (ahead, replace(core(run), beside=ahead.name)) if ahead.name else (core(run),)


def _gated(run: Execution) -> tuple[Operator, ...]:
    """The core's output times a sigmoid of numbers that the projection makes beside Q (Qiu et al.
    2025, arXiv 2505.06708): reads both and writes one, backward reads three and writes two. In two
    kernels where nothing fuses them."""
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
    """The core, behind copies of keys and values for all heads of queries where these are made:
    each is read once and written for every head, backward summed over them (torchtitan,
    repeat_kv in models/llama/model.py)."""
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
    """Q, K and V of the rank's heads, from the whole hidden width."""
    queries = run.query_width + run.output_width * run.shape.output_gate
    widths = (queries, run.kv_width, run.value_width)
    packed = (sum(widths),) if run.fusion.packed_projections else widths
    made = column_linear(run, "qkv", packed, bias=run.shape.biased("qkv"), normed=normed)
    return without_key_bias(run, made)


def without_key_bias(run: Execution, projection: Operator) -> Operator:
    """A projection to keys and others, of which only the others may have a bias."""
    if run.shape.key_bias or not run.shape.biased("qkv"):
        return projection
    return replace(projection, parameters=projection.parameters - run.kv_width)


def project_out(run: Execution) -> Operator:
    """From the core's output, which a recipe may have kept in a format of its own."""
    biased = run.shape.biased("attention output")
    projection = row_linear(run, "attention output", run.output_width, bias=biased)
    if not (run.recipe and run.recipe.core):
        return projection
    kept = run.rows * run.output_width * run.recipe.core
    return replace(projection, saved_for_weights=kept, made=0.0, casts=False)


def normalise_heads(run: Execution, projection: str) -> tuple[Operator, ...]:
    """QK norm of what a projection made: the heads of Q and K one by one, all with the same gain
    (Dehghani et al. 2023, section 2; Qwen3's has one a layer), with one each and no shift
    (transformers, CohereLayerNorm), or without any; or all heads of a token together, each column
    with its own (OLMo et al. 2024, arXiv 2501.00656, section 3.2). Raises `InputError` where ranks
    have some heads each of what is normalised together."""
    if run.shape.qk_norm == "none":
        return ()
    whole = run.shape.qk_norm == "whole"
    if whole and run.tp > 1:
        fault = f"tp = {run.tp}: norms over the heads of all ranks are not known"
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
    """Rotary embedding of Q and K (Su et al. 2021): forward and backward are the same rotation.

    Fused: read and write each once. Otherwise x cos + rotate_half(x) sin for each of Q and K: two
    products (2 passes each), a sum (3), a negation of half (1) and a concatenation (2), ten passes
    in five kernels, all of which compute the places of their elements. As complex numbers: a cast
    to fp32 (3), a product (4) and a cast back (3), ten passes in three kernels, which inductor does
    not join (pytorch/torchtitan issue 15).
    """
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
    """Copies of Q, K, V into their own tensors and of K, V into one (nanotron, models/llama.py)."""
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
    """Q reshaped to its heads, which is a copy where each group of them lies beside its key
    (Megatron-LM, megatron/core/transformer/attention.py, get_query_key_value_tensors), and K made
    contiguous for its norm (TransformerEngine, ops/basic/rmsnorm.py). Backward all have come apart.
    """
    if not run.fusion.query_copies or run.kv_heads in (1, run.heads):
        return Operator()
    keys = run.kv_width if run.shape.qk_norm != "none" else 0
    elements, name = float(run.rows * (run.query_width + keys)), "query copies"
    moved, launches = 2 * elements * run.width, 1 + (keys > 0)
    kernel = MemoryBound(name=name, bytes=moved, strided=elements, launches=launches)
    return Operator(name=name, forward=(kernel,), inputs=inputs_saved(run))
