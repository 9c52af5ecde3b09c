"""The head: final normalisation, logits and cross-entropy over the vocabulary's shards.

The head keeps the inputs of normalisation and output layer, and the fp32 probabilities: 4 s b h / t
(1 + v / h) bytes for b sequences of s tokens, widths h (hidden) and v (vocabulary) and t ranks
(Korthikanti et al. 2022, section 4.3). BERT's head transforms masked tokens and classifies pairs.
"""

from collections.abc import Mapping
from dataclasses import replace

from sim.model.execution import Execution
from sim.model.fusion import Metric
from sim.model.kernels import MemoryBound
from sim.model.linear import Linear, joins_gradients
from sim.model.operators import Matrix, Operator, normalise, tensor_collective
from sim.model.tensor_parallel import input_collectives
from sim.program.causes import TENSOR
from sim.program.operations import Collective

# Reads and writes of a row of logits that does not fit into shared memory (48 KiB a block, less 128
# B for its sums). Torch's block-wise (log-)softmax reads the row three times, for its maximum, for
# the sum of exponentials and for the result, and writes the result
# (aten/src/ATen/native/cuda/SoftMax.cu, cunn_SoftMaxForward). Rows of 12,000 elements do not stay
# in a cache: the kernel has half the rate of a kernel that reads once (triton-lang's tutorial
# 02-fused-softmax, 351 of 676 GB/s in intel-xpu-backend-for-triton, issue 544).
LONG_ROW = (48 << 10) - 128
SOFTMAX = 4
# Backward the kernel reads dy for the sum, dy and y for the result, and writes the result
# (cunn_SoftMaxBackward).
SOFTMAX_GRAD = 4

# Bytes per fp32 logit, and kernels, of each metric; logits of half precision are cast first.
_METRICS: Mapping[Metric, tuple[float, int]] = {
    # Composer's LanguageCrossEntropy and LanguagePerplexity (composer/metrics/nlp.py): each runs
    # torch's CrossEntropyLoss on a cast of its own, as autocast runs the loss in fp32.
    "cross-entropy": (4 * SOFTMAX, 3),
    # InternEvo's AccPerplex (internlm/model/metrics.py) computes the maximum twice, its index, the
    # difference, exponentials in place, and their sum.
    "accuracy": (4 * (1 + 1 + 1 + 2 + 2 + 1), 20),
    # InternEvo's LossWithTypeId: flash-attn's cross-entropy, which reads a row twice
    # (csrc/xentropy/xentropy_kernel.cu, cunn_SoftMaxXEntropyForward).
    "loss": (4 * 2, 6),
}


def metrics(run: Execution, logits: float) -> tuple[Operator, ...]:
    """Return the operator that computes the stack's metrics on `logits` logits, if it has any."""
    if not run.fusion.metrics:
        return ()
    cast = 6 if run.width == 2 and not run.fusion.logits_fp32 else 0
    moved, launches = (
        sum(column) for column in zip(*(_METRICS[name] for name in run.fusion.metrics), strict=True)
    )
    kernel = MemoryBound(
        name="metrics",
        bytes=logits * (moved + cast * len(run.fusion.metrics)),
        launches=int(launches) + bool(cast) * len(run.fusion.metrics),
    )
    return (Operator(name="metrics", forward=(kernel,)),)


LAYER = False
LOGITS = "logits"


def operators(run: Execution) -> tuple[Operator, ...]:
    """Return the block's operators on one rank, in forward order."""
    if run.model.decoder_seq:
        from sim.model.encoder_decoder import decoded

        run = decoded(run)
    run = replace(run, recipe=None)  # no recipe casts the output layer
    model, rows = run.shape, run.rows
    norm = normalise(run, "final norm", run.local, residual=False)
    before = [] if model.post_norm else [norm]
    if model.predictions:
        from sim.model.bert_head import gathered, masked_transform

        rows = run.microbatch * model.predictions
        before += [gathered(run, rows), *masked_transform(run, rows)]
    if model.pooler:
        from sim.model.bert_head import pooler

        before.append(pooler(run))
    loss = (cross_entropy(run, rows), *metrics(run, float(rows * run.vocab)))
    return (*before, logits(run, rows), *loss)


def logits(run: Execution, rows: int) -> Operator:
    """Return the column-parallel output layer. As for other column-parallel layers, its input is
    gathered, or the input's gradient is summed. A tied matrix counts in the rank's first block that
    uses it."""
    hidden, vocab = run.model.hidden, run.vocab
    biased = bool(run.shape.predictions) or run.shape.biased("logits")
    # A tied matrix's gradient is accumulated after the embedding.
    alone = replace(run, later=0.0, bucketed=0.0) if joins_gradients(run) else run
    linear = Linear(
        run=alone, name="logits", rows=rows, inputs=hidden, outputs=(vocab,), bias=biased
    )
    whole = rows * hidden
    local = rows * run.local // run.rows
    gather = tensor_collective(run, "all_gather", "logits all-gather", whole)
    before, after = input_collectives(run, "logits", whole)
    tied = run.model.tied_embeddings and run.words == "again"
    weights = 0 if tied else linear.weights
    return Operator(
        name=LOGITS,
        forward=(*((gather,) if run.sharding.sequence_parallel else ()), *linear.forward),
        input_gradient=linear.input_gradient,
        weight_gradient=linear.weight_gradient,
        before_weights=before,
        after_input=after,
        overlaps=run.fusion.overlap_tensor,
        inputs=float(local * hidden * run.width),
        saved_for_weights=float(local * hidden * run.width),
        handed=float(rows * vocab * run.width),
        transient=linear.transient,
        parameters=float(weights + (vocab if biased else 0)),
        matrices=(Matrix(hidden, vocab, hidden=False),) if weights else (),
    )


def cross_entropy(run: Execution, rows: int) -> Operator:
    """Return the loss of each row over the vocabulary, and its gradient.

    Megatron-LM (megatron/mpu/cross_entropy.py) casts to fp32 (6 bytes a logit), takes the maximum
    (4), subtracts it (8), exponentiates (8), sums (4) and divides (8). Maximum and divisor are one
    number per row, so the subtraction and the division broadcast. Three all-reduces carry such
    numbers. The backward pass scales in place (8) and casts back (6).

    Torch's own loss casts (6) and takes log-softmax (`SOFTMAX` reads and writes). Its backward pass
    writes zeros (1), computes log-softmax's gradient (`SOFTMAX_GRAD`) and casts (6); the zeros and
    the result are alive together. A fused kernel reads the logits once for the statistics and once
    more to write the gradient; it makes no fp32 copy.
    """
    logits = rows * run.vocab
    broadcasts: tuple[MemoryBound, ...] = ()
    copy = 2 if run.fusion.logits_fp32 and run.width == 2 else 0
    # Half-precision logits and their fp32 copy, or the gradients of both.
    alive = run.width + (4 if copy else 0)
    if run.fused("cross_entropy"):
        cast = copy if run.fusion.logits_cast else 0
        width = 4 if cast else run.width
        ahead, back = logits * (3 * width + 3 * cast), logits * (2 * width + 3 * cast)
        kept, alive, launches = logits * width, width, (2 + bool(cast), 1 + bool(cast))
    elif run.fusion.vocab_parallel:
        ahead, back, launches = logits * (16 + 3 * copy), logits * (8 + 3 * copy), (12, 6)
        kept = logits * 4
        broadcasts = (
            MemoryBound(
                name="cross-entropy rows", bytes=16.0 * logits, strided=2.0 * logits, launches=2
            ),
        )
    else:
        width = 4 if copy else run.width
        ahead = logits * (SOFTMAX * width + 3 * copy)
        back = logits * ((1 + SOFTMAX_GRAD) * width + 3 * copy)
        kept, alive, launches = logits * width, max(alive, 2 * width), (3, 4)
    if run.fusion.shifted_logits and run.shape.causal:
        ahead, back = ahead + 2 * logits * run.width, back + 3 * logits * run.width
        launches = (launches[0] + 1, launches[1] + 2)
    return Operator(
        name="cross-entropy",
        forward=(
            MemoryBound(name="cross-entropy", bytes=float(ahead), launches=launches[0]),
            *broadcasts,
            *_row_sums(run, rows),
        ),
        input_gradient=(
            MemoryBound(name="cross-entropy grad", bytes=float(back), launches=launches[1]),
        ),
        saved=float(kept),
        made=float(kept),
        transient=float(logits * alive),
    )


def _row_sums(run: Execution, rows: int) -> tuple[Collective, ...]:
    """Return the all-reduces over the shards: of the maximum, the target's logit, and the sum of
    exponentials."""
    if run.tp == 1:
        return ()
    return tuple(
        Collective(
            kind="all_reduce",
            axes=run.sharding.tensor,
            bytes=4.0 * rows,
            name=f"cross-entropy {term}",
            cause=TENSOR,
        )
        for term in ("maximum", "target", "sum")
    )
