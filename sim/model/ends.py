"""The two ends of the model on one rank: the embedding, and the head with its loss."""

from dataclasses import replace

from sim.model.execution import Execution, Sharding
from sim.model.kernels import Fusion, Item, LayerWork, MemoryBound, Precision
from sim.model.linear import Linear, accumulate, beside
from sim.model.operators import MASK, Operator, backward, forward, normalise, tensor_collective
from sim.model.transformer import Transformer
from sim.program import Collective, Kind

# Indices, masks and zeroed rows of a vocabulary-parallel look-up (Megatron-LM,
# megatron/mpu/layers.py, VocabParallelEmbedding.forward), and the sort behind the dense
# embedding gradient (pytorch, aten/src/ATen/native/cuda/Embedding.cu).
_MASKING_LAUNCHES, _SORT_LAUNCHES = 5, 8


def embedding_work(
    model: Transformer,
    *,
    microbatch: int,
    sharding: Sharding,
    precision: Precision,
    fusion: Fusion,
    later: float = 1.0,
    bucketed: float = 0.0,
) -> LayerWork:
    """Word (and position) embedding, the sum over vocabulary shards, dropout.

    Keeps the dropout mask, s b h bytes (Korthikanti et al. 2022, section 4.3). Backward fills and
    accumulates a dense gradient of the whole shard, as torch does.
    """
    run = Execution(
        model=model,
        microbatch=microbatch,
        sharding=sharding,
        precision=precision,
        fusion=fusion,
        later=later,
        bucketed=bucketed,
    )
    operators = [_look_up(run), _positions(run)]
    if model.post_norm:
        operators.append(normalise(run, "embedding norm", run.local, residual=False))
    operators.append(_embedding_dropout(run))
    return _work(operators)


def _look_up(run: Execution) -> Operator:
    hidden, width = run.model.hidden, run.width
    size, weights = run.rows * hidden, run.vocab * hidden
    sharded = run.tp > 1
    look_up = MemoryBound(
        name="embedding",
        bytes=float((3 if sharded else 2) * size * width),
        launches=1 + _MASKING_LAUNCHES * sharded,
    )
    kind: Kind = "reduce_scatter" if run.sharding.sequence_parallel else "all_reduce"
    total = tensor_collective(run, kind, "embedding sum", size)
    dense = MemoryBound(
        name="embedding grad",
        bytes=float((weights + 3 * size) * width),
        launches=_SORT_LAUNCHES,
    )
    whole = tensor_collective(run, "all_gather", "embedding grad all-gather", size)
    return Operator(
        forward=(look_up, total) if sharded else (look_up,),
        backward=(
            *((whole,) if run.sharding.sequence_parallel else ()),
            dense,
            *_always_accumulate(run, "embedding", weights),
        ),
        transient=float((weights + size) * width),
        parameters=float(weights),
    )


def _always_accumulate(run: Execution, name: str, weights: int) -> tuple[Item, ...]:
    """An embedding's gradient comes from no GEMM: even fused stacks add it by a kernel.

    A tied one is the sum of the output layer's and its own in every micro-step.
    """
    if run.fusion.gradients == "fused":
        return (MemoryBound(name=f"{name} accumulate", bytes=float(weights * (run.width + 8))),)
    joined = 1.0 if _joins_gradients(run) else 0.0
    return accumulate(replace(run, later=run.later + joined), name, weights)


def _joins_gradients(run: Execution) -> bool:
    """Whether autograd adds up a tied matrix's two gradients before they are accumulated."""
    return run.model.tied_embeddings and run.fusion.gradients == "fresh"


def _positions(run: Execution) -> Operator:
    model, width = run.model, run.width
    if not model.position_parameters:
        return Operator()
    size = run.local * model.hidden
    kinds = 1 + (model.token_types > 0)
    return Operator(
        forward=(
            MemoryBound(
                name="positions", bytes=float(3 * kinds * size * width), launches=2 * kinds
            ),
        ),
        backward=(
            MemoryBound(
                name="positions grad", bytes=float(2 * kinds * size * width), launches=4 * kinds
            ),
        ),
        parameters=float(model.position_parameters),
    )


def _embedding_dropout(run: Execution) -> Operator:
    if not run.model.dropout:
        return Operator()
    size = run.local * run.model.hidden
    moved = float(size * (2 * run.width + MASK))
    return Operator(
        forward=(MemoryBound(name="embedding dropout", bytes=moved, randoms=float(size)),),
        backward=(MemoryBound(name="embedding dropout grad", bytes=moved),),
        saved=float(size * MASK),
    )


def head_work(
    model: Transformer,
    *,
    microbatch: int,
    sharding: Sharding,
    precision: Precision,
    fusion: Fusion,
    later: float = 1.0,
    bucketed: float = 0.0,
    own_output: bool = False,
) -> LayerWork:
    """Final normalisation, logits and cross-entropy over the vocabulary's shards.

    Keeps the inputs of the normalisation and of the output layer and the fp32 probabilities:
    4 s b h / t (1 + v / h) bytes (Korthikanti et al. 2022, section 4.3). `own_output` counts
    a tied output matrix here as well: a last stage that is not the first holds its copy.
    """
    run = Execution(
        model=model,
        microbatch=microbatch,
        sharding=sharding,
        precision=precision,
        fusion=fusion,
        later=later,
        bucketed=bucketed,
    )
    operators = [] if model.post_norm else [normalise(run, "final norm", run.local, residual=False)]
    rows = run.rows
    if model.predictions:
        rows = run.microbatch * model.predictions
        operators += [_gather_masked(run, rows), *_masked_transform(run, rows)]
    if model.pooler:
        operators.append(_pooler(run))
    holds = own_output or not model.tied_embeddings
    operators += [_logits(run, rows, holds=holds), _cross_entropy(run, rows)]
    return _work(operators)


def _work(operators: list[Operator]) -> LayerWork:
    return LayerWork(
        forward=forward(operators),
        backward=backward(operators),
        saved=sum(operator.saved for operator in operators),
        transient=max(operator.transient for operator in operators),
        parameters=sum(operator.parameters for operator in operators),
    )


def _gather_masked(run: Execution, rows: int) -> Operator:
    """Pick the masked tokens; backward scatters their gradients into zeros."""
    size = run.model.hidden * run.width
    return Operator(
        forward=(MemoryBound(name="gather masked", bytes=2.0 * rows * size),),
        backward=(
            MemoryBound(
                name="scatter masked", bytes=float((run.rows + 2 * rows) * size), launches=2
            ),
        ),
    )


def _masked_transform(run: Execution, rows: int) -> tuple[Operator, ...]:
    """BERT's dense layer, gelu and normalisation in front of the logits."""
    hidden, width = run.model.hidden, run.width
    linear = Linear(
        run=run, name="transform", rows=rows, inputs=hidden, outputs=(hidden,), bias=True
    )
    size = float(rows * hidden * width)
    return (
        Operator(
            forward=linear.forward,
            backward=(*linear.input_gradient, *linear.weight_gradient),
            saved=size,
            parameters=float(linear.weights + hidden),
        ),
        Operator(
            forward=(MemoryBound(name="transform gelu", bytes=2 * size),),
            backward=(MemoryBound(name="transform gelu grad", bytes=3 * size),),
            saved=size,
        ),
        normalise(run, "transform norm", rows, residual=False),
    )


def _pooler(run: Execution) -> Operator:
    """The first token's dense layer and the next-sentence classifier: small kernels."""
    hidden = run.model.hidden
    linear = Linear(
        run=run, name="pooler", rows=run.microbatch, inputs=hidden, outputs=(hidden,), bias=True
    )
    small = MemoryBound(
        name="next sentence", bytes=8.0 * run.microbatch * hidden * run.width, launches=8
    )
    return Operator(
        forward=(*linear.forward, small),
        backward=(small, *linear.input_gradient, *linear.weight_gradient),
        parameters=float(linear.weights + hidden + 2 * hidden + 2),
    )


def _logits(run: Execution, rows: int, *, holds: bool) -> Operator:
    """Column-parallel output layer, its input gathered (or its gradient summed) like any other."""
    hidden, vocab = run.model.hidden, run.vocab
    masked = bool(run.model.predictions)
    # A tied matrix's gradient is accumulated behind the embedding.
    own = replace(run, later=0.0, bucketed=0.0) if _joins_gradients(run) else run
    linear = Linear(run=own, name="logits", rows=rows, inputs=hidden, outputs=(vocab,), bias=masked)
    ahead: tuple[Item, ...] = ()
    back: tuple[Item, ...] = (*linear.input_gradient, *linear.weight_gradient)
    whole = rows * hidden
    local = rows * run.local // run.rows
    if run.sharding.sequence_parallel:
        ahead = (tensor_collective(run, "all_gather", "logits all-gather", whole),)
        gather = tensor_collective(run, "all_gather", "logits input all-gather", whole)
        scatter = tensor_collective(run, "reduce_scatter", "logits grad scatter", whole)
        back = (
            *beside(run, gather, linear.input_gradient),
            *beside(run, scatter, linear.weight_gradient),
        )
    elif run.tp > 1:
        total = tensor_collective(run, "all_reduce", "logits grad all-reduce", whole)
        back = (*linear.input_gradient, *beside(run, total, linear.weight_gradient))
    weights = linear.weights if holds else 0
    return Operator(
        forward=(*ahead, *linear.forward),
        backward=back,
        saved=float(local * hidden * run.width),
        transient=linear.transient,
        parameters=float(weights + (vocab if masked else 0)),
    )


def _cross_entropy(run: Execution, rows: int) -> Operator:
    """Loss of each row over the vocabulary, and its gradient.

    Megatron-LM (megatron/mpu/cross_entropy.py) casts to fp32 (6 bytes a logit), takes the maximum
    (4), subtracts it (8), exponentiates (8), sums (4), divides (8); three all-reduces of one
    number a row; backward scales in place (8) and casts back (6). torch's own: cast (6) and
    log-softmax (8); backward zeros and log-softmax's (16) and the cast (6). Fused: one reading
    for the statistics, another that writes the gradient in place.
    """
    logits = rows * run.vocab
    copy = 2 if run.fusion.logits_fp32 and run.width == 2 else 0
    if run.fused("cross_entropy"):
        ahead, back, launches = logits * run.width * 3, logits * run.width * 2, (2, 1)
        kept = logits * run.width
    elif run.fusion.vocab_parallel:
        ahead, back, launches = logits * (32 + 3 * copy), logits * (8 + 3 * copy), (14, 6)
        kept = logits * 4
    else:
        ahead, back, launches = logits * (8 + 3 * copy), logits * (16 + 3 * copy), (3, 4)
        kept = logits * 4
    return Operator(
        forward=(
            MemoryBound(name="cross-entropy", bytes=float(ahead), launches=launches[0]),
            *_row_sums(run, rows),
        ),
        backward=(MemoryBound(name="cross-entropy grad", bytes=float(back), launches=launches[1]),),
        saved=float(kept),
        # Half-precision logits and the fp32 copy they were cast to, or their gradient likewise.
        transient=float(logits * (run.width + (4 if copy else 0))),
    )


def _row_sums(run: Execution, rows: int) -> tuple[Collective, ...]:
    """All-reduces over the shards: the maximum, the target's logit, the sum of exponentials."""
    if run.tp == 1:
        return ()
    return tuple(
        Collective(
            kind="all_reduce",
            axes=("tp",),
            bytes=4.0 * rows,
            name=f"cross-entropy {what}",
            cause="tensor communication",
        )
        for what in ("maximum", "target", "sum")
    )
