"""Metrics that a training script computes from the logits of every micro-step, beside the loss.

Nothing of it has a gradient; it runs on the compute stream all the same, over every logit.
"""

from collections.abc import Mapping

from sim.model.execution import Execution
from sim.model.fusion import Metric
from sim.model.kernels import MemoryBound
from sim.model.operators import Operator

# Passes over a row of logits longer than 1,024: torch's block-wise (log-)softmax reads it three
# times, for its maximum, for the sum of exponentials and for the result, and writes that
# (aten/src/ATen/native/cuda/SoftMax.cu, cunn_SoftMaxForward). Rows of 12,000 do not stay in a
# cache: half the rate of a kernel that reads once (triton-lang's tutorial 02-fused-softmax, 351 of
# 676 GB/s in intel-xpu-backend-for-triton, issue 544).
SOFTMAX = 4
# Backward it reads dy for the sum, dy and y for the result (cunn_SoftMaxBackward).
SOFTMAX_GRAD = 4

# Bytes a logit of fp32, and kernels; logits of half precision are cast first.
_METRICS: Mapping[Metric, tuple[float, int]] = {
    # Composer's LanguageCrossEntropy and LanguagePerplexity (composer/metrics/nlp.py): each
    # torch's CrossEntropyLoss, which autocast runs in fp32, of its own cast.
    "cross-entropy": (4 * SOFTMAX, 3),
    # InternEvo's AccPerplex (internlm/model/metrics.py): the maximum twice, its place, the
    # difference, exponentials in place, their sum.
    "accuracy": (4 * (1 + 1 + 1 + 2 + 2 + 1), 20),
    # Its LossWithTypeId: flash-attn's cross-entropy, which reads a row twice
    # (csrc/xentropy/xentropy_kernel.cu, cunn_SoftMaxXEntropyForward).
    "loss": (4 * 2, 6),
}


def measured(run: Execution, logits: float) -> tuple[Operator, ...]:
    """The operator of the stack's metrics on so many logits; none where it has none."""
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
