"""The core of attention, softmax(Q K' / sqrt(d)) V, with scores kept in memory."""

from dataclasses import replace

from sim.model.execution import Execution
from sim.model.kernels import Gemm, Item, MemoryBound
from sim.model.operators import MASK, Operator

CORE = "attention core"


def with_sinks(run: Execution, core: Operator) -> Operator:
    """Return the core with attention sinks: a learned logit per head joins the softmax's sum
    (OpenAI 2025, gpt-oss model card, section 2). The logit costs the kernels nothing; its gradient
    sums dO O and sums of exponentials over the queries."""
    gradient = MemoryBound(name="sinks grad", bytes=float(2 * 4 * run.rows * run.heads), launches=2)
    return replace(
        core, input_gradient=(*core.input_gradient, gradient), parameters=float(run.heads)
    )


def inputs_saved(run: Execution) -> float:
    """Bytes of Q, K and V."""
    return float(run.mixed * run.width)


def standard_core(run: Execution) -> Operator:
    """Return the core that keeps scores in memory: two batched products around softmax and dropout.
    For `a` heads and b sequences of s tokens it keeps 5 a s^2 b bytes: the outputs of softmax and
    dropout (2 a s^2 b each) and the mask (a s^2 b; Korthikanti et al. 2022, section 4.1)."""
    model, width = run.shape, run.width
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
            _merge(run, "merge heads"),
        ),
        input_gradient=_standard_backward(run, scores),
        inputs=inputs_saved(run),
        saved=inputs_saved(run) + scores * width + dropped,
        made=float(scores * width + dropped),
        transient=2.0 * scores * width,
    )


def _merge(run: Execution, name: str) -> MemoryBound:
    """Copy the heads from a matrix for each head into the rows of their tokens, or back."""
    elements = float(run.rows * run.output_width)
    return MemoryBound(name=name, bytes=2 * elements * run.width, strided=elements)


def join(run: Execution, passes: int, launches: int = 1) -> MemoryBound:
    """Join dQ, dK and dV in one tensor, for the backward pass of their common projection."""
    elements = float(run.mixed)
    return MemoryBound(
        name="join qkv grad",
        bytes=passes * elements * run.width,
        strided=run.joined * elements,
        launches=launches,
    )


def _product(run: Execution, name: str, m: int, n: int, k: int) -> Gemm:
    """Return one of attention's six batched products, two forward and four backward."""
    batch = run.microbatch * run.heads
    return Gemm(name=name, m=m, n=n, k=k, batch=batch, precision=run.precision)


def _biased(run: Execution, scores: int, suffix: str = "") -> tuple[Item, ...]:
    """Add biases of relative positions to the scores: read two tensors, write the sum. The backward
    pass adds the gradients of the scores to the biases' gradients from later layers (transformers,
    modeling_t5.py, T5Attention.forward: `scores += position_bias`). Attention to another sequence
    has no biases."""
    if run.shape.positions != "relative" or run.memory:
        return ()
    return (MemoryBound(name=f"position bias{suffix}", bytes=float(3 * scores * run.width)),)


def _softmax(run: Execution, scores: int) -> tuple[Item, ...]:
    """Return scale, mask and softmax of scores (Megatron-LM, megatron/model/fused_softmax.py)."""
    passes, launches = _softmax_passes(run, backward=False)
    masks = 0 if _fused_softmax(run) else 1 + (run.fusion.added_mask and run.shape.causal)
    return (
        MemoryBound(
            name="softmax",
            bytes=float(passes * scores * run.width),
            strided=float(masks * scores),
            launches=launches,
        ),
    )


def _softmax_passes(run: Execution, *, backward: bool) -> tuple[int, int]:
    """Return how often scale, mask and softmax read or write half-precision scores, and launches.
    The softmax is fused, unfused, unfused with an added mask, or Megatron's fall-back for shapes
    that its kernel refuses. The fall-back works on an fp32 copy: cast, scale, mask, softmax, cast.
    Reads and writes with an added mask, forward (backward): scale 2 (2), torch.where of causal
    scores 2 (zeros 1 and where 3), the sum with the mask 2 (0), softmax 2 (3)."""
    if _fused_softmax(run):
        return (3, 1) if backward else (2, 1)
    if run.fusion.masked_softmax and run.width == 2:
        return (20, 5) if backward else (18, 5)
    if run.fusion.added_mask:
        where = run.shape.causal
        return (5 + 4 * where, 2 + 2 * where) if backward else (6 + 2 * where, 3 + where)
    return (7, 3) if backward else (6, 3)


def _fused_softmax(run: Execution) -> bool:
    """Whether the fused kernel takes these scores: 4 divides batch x heads, and s <= 2048.

    Megatron-LM, megatron/model/fused_softmax.py, is_kernel_available.
    """
    if run.fusion.compiled:
        return True
    fits = run.microbatch * run.heads % 4 == 0 and run.seq <= 2048
    return run.fusion.masked_softmax and fits


def _dropout(run: Execution, elements: int, name: str, *, drawn: int = 0) -> tuple[Item, ...]:
    if not run.shape.dropout:
        return ()
    moved = float(elements * (2 * run.width + MASK))
    return (MemoryBound(name=name, bytes=moved, randoms=float(drawn)),)


def _standard_backward(run: Execution, scores: int) -> tuple[Item, ...]:
    seq, keys, head, width = run.seq, run.keys, run.shape.head, run.width
    passes, launches = _softmax_passes(run, backward=True)
    return (
        _merge(run, "merge heads grad"),
        _product(run, "attention over values dgrad", seq, keys, run.shape.value_head),
        _product(run, "values grad", keys, run.shape.value_head, seq),
        *_dropout(run, scores, "attention dropout grad"),
        MemoryBound(name="softmax grad", bytes=float(passes * scores * width), launches=launches),
        *_biased(run, scores, " grad"),
        _product(run, "queries grad", seq, head, keys),
        _product(run, "keys grad", keys, head, seq),
        # Scales dQ and dK as Q K' was scaled, then joins dQ, dK and dV in one tensor.
        join(run, passes=4, launches=3),
    )
