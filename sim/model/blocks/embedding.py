"""The embedding: words, positions and segments, the sum over vocabulary shards, dropout.

The embedding keeps the dropout mask, a byte for each element (Korthikanti et al. 2022, section
4.3). The backward pass makes a dense gradient of the rank's whole shard, as torch does.
"""

from dataclasses import replace

from sim.model.execution import Execution
from sim.model.kernels import Item, MemoryBound
from sim.model.linear import accumulate, joins_gradients
from sim.model.operators import MASK, Matrix, Operator, normalise, tensor_collective
from sim.program.operations import Kind

# Launches for indices, masks and zeroed rows of a vocabulary-parallel look-up (Megatron-LM,
# megatron/mpu/layers.py, VocabParallelEmbedding.forward), and for the sort after the dense
# embedding gradient (pytorch, aten/src/ATen/native/cuda/Embedding.cu).
_MASKING_LAUNCHES, _SORT_LAUNCHES = 5, 8

LAYER = False


def operators(run: Execution) -> tuple[Operator, ...]:
    """Return the block's operators on one rank, in forward order."""
    return (look_up(run), positions(run), *behind(run))


def behind(run: Execution) -> tuple[Operator, ...]:
    """Return the norm after the embedding, where the model has one, and dropout."""
    norm = normalise(run, "embedding norm", run.local, residual=False)
    norms = (norm,) if run.shape.post_norm or run.shape.embedding_norm else ()
    return (*norms, dropped(run))


def look_up(run: Execution) -> Operator:
    """Return the look-up of the tokens' words, summed over the shards of the vocabulary."""
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
        name="embedding grad", bytes=float((weights + 3 * size) * width), launches=_SORT_LAUNCHES
    )
    whole = tensor_collective(run, "all_gather", "embedding grad all-gather", size)
    return Operator(
        name="embedding",
        forward=(look_up, total) if sharded else (look_up,),
        weight_gradient=(
            *((whole,) if run.sharding.sequence_parallel else ()),
            dense,
            *_always_accumulate(run, weights),
        ),
        handed=float(run.local * hidden * width),
        transient=float((weights + size) * width),
        parameters=float(weights),
        matrices=(Matrix(run.vocab, hidden, hidden=False),),
    )


def looked_up_again(run: Execution) -> Operator:
    """Return another look-up in the same word embedding. Its matrix counts only in the rank's first
    block that uses it."""
    operator = look_up(run)
    return replace(operator, parameters=0.0, matrices=()) if run.words == "again" else operator


def _always_accumulate(run: Execution, weights: int) -> tuple[Item, ...]:
    """Return the kernels that accumulate an embedding's gradient. No GEMM makes this gradient, so
    even stacks that accumulate inside GEMMs add it by a kernel. A tied embedding adds the output
    layer's gradient to its own in every micro-step."""
    if run.fusion.adds_in_gemm:
        buffer = 4 if run.fusion.gradients == "fused" else run.width
        moved = float(weights * (run.width + 2 * buffer))
        return (MemoryBound(name="embedding accumulate", bytes=moved),)
    joined = 1.0 if joins_gradients(run) else 0.0
    return accumulate(replace(run, later=run.later + joined), "embedding", weights)


def positions(run: Execution) -> Operator:
    """Return the addition of a learned vector for each position, and for each type of token."""
    model, width = run.shape, run.width
    if model.positions == "relative":
        return _relative(run)
    if not model.position_parameters:
        return Operator()
    size = run.local * model.hidden
    kinds = 1 + (model.token_types > 0)
    return Operator(
        name="positions",
        forward=(
            MemoryBound(
                name="positions", bytes=float(3 * kinds * size * width), launches=2 * kinds
            ),
        ),
        weight_gradient=(
            MemoryBound(
                name="positions grad", bytes=float(2 * kinds * size * width), launches=4 * kinds
            ),
        ),
        parameters=float(model.position_parameters),
        matrices=(Matrix(model.position_parameters // model.hidden, model.hidden, hidden=False),),
    )


def _relative(run: Execution) -> Operator:
    """Return the biases of relative positions, one for each score of the rank's heads. Each pair of
    tokens looks up its distance in a table; the backward pass makes the table's dense gradient.
    About a dozen integer kernels of 8 bytes compute the distances. The biases are looked up, laid
    out by heads and added to the padding mask. The sum has a copy for each sequence, which lives
    until the backward pass (transformers, modeling_t5.py, T5Attention.compute_bias and
    `position_bias + causal_mask`)."""
    pairs, size = run.seq * run.seq, run.seq * run.seq * run.heads * run.width
    kept, table = run.microbatch * size, run.shape.position_buckets * run.heads
    ahead = float(2 * 12 * 8 * pairs + 4 * size + 2 * kept)
    return Operator(
        name="position bias",
        forward=(MemoryBound(name="position bias", bytes=ahead, launches=15),),
        weight_gradient=(
            MemoryBound(
                name="position bias table grad",
                bytes=float(kept + 3 * size),
                launches=_SORT_LAUNCHES,
            ),
        ),
        saved=float(kept),
        made=float(kept),
        parameters=float(table),
        matrices=(Matrix(run.shape.position_buckets, run.heads, hidden=False),),
    )


def dropped(run: Execution) -> Operator:
    """Return the dropout of the embedded tokens."""
    if not run.shape.dropout:
        return Operator()
    size = run.local * run.model.hidden
    moved = float(size * (2 * run.width + MASK))
    return Operator(
        name="embedding dropout",
        forward=(MemoryBound(name="embedding dropout", bytes=moved, randoms=float(size)),),
        input_gradient=(MemoryBound(name="embedding dropout grad", bytes=moved),),
        saved=float(size * MASK),
        made=float(size * MASK),
    )
