"""What the optimizer step runs on one rank: memory-bound passes over its parameters."""

from collections.abc import Iterator
from math import ceil
from typing import Literal

from sim.model.fusion import Gradients
from sim.model.kernels import MemoryBound, Precision, weight_width
from sim.model.precision import Recipe

OptimizerName = Literal["adam", "lamb", "sgd"]

# Elements that one launch of apex's multi-tensor kernels covers: 320 blocks of 2048 * 32
# (apex/multi_tensor_apply and csrc/multi_tensor_apply.cuh).
_ELEMENTS_PER_LAUNCH = 320 * 2048 * 32

# Bytes a parameter with fp32 state: (fused, one kernel per arithmetic operation, their number).
# Adam fused reads gradient, weight and two moments, writes three (28); in torch's for-each form:
# lerp 12, decay 8, product 8, addcmul 12, sqrt 8, quotient 8, epsilon 8, addcdiv 16.
# LAMB (apex csrc/multi_tensor_lamb.cu): moments and update 28, two norms 8, weights 12.
# SGD with momentum: gradient, momentum, weight read, two written (20).
_UPDATE: dict[OptimizerName, tuple[float, float, int]] = {
    "adam": (28.0, 80.0, 8),
    "lamb": (48.0, 100.0, 14),
    "sgd": (20.0, 24.0, 2),
}


def gradient_width(precision: Precision, gradients: Gradients) -> int:
    """Bytes of an accumulated gradient's element.

    >>> gradient_width("fp16", "buffer"), gradient_width("bf16", "fused")
    (2, 4)
    """
    return 4 if gradients in ("fused", "fp32-buffer") else weight_width(precision)


def optimizer_work(
    *,
    parameters: float,
    updated: float | None = None,
    optimizer: OptimizerName = "adam",
    precision: Precision = "bf16",
    gradients: Gradients = "fused",
    fused: bool = True,
    clip: bool = True,
    tensors: int = 1,
    written: float | None = None,
) -> tuple[MemoryBound, ...]:
    """The step's kernels, in order, on a rank that holds `parameters` and updates `updated`.

    Below fp32 there are fp32 masters: half-precision gradients are cast up first, fp16 is
    unscaled and checked for overflow, the norm is taken and applied (`clip`), moments and masters
    are updated, working weights written back, gradients zeroed unless they are `fresh` in each
    step. `updated` is the share of a distributed optimizer (ZeRO-1). `fused=False` is one kernel
    per arithmetic operation. `tensors` are the parameter tensors, of which copies launch one kernel
    each, `written` the mean bytes of a working weight where a recipe makes it smaller.

    Source: Megatron-LM, megatron/optimizer/optimizer.py (Float16OptimizerWithFloat16Params.step).

    >>> sum(k.bytes for k in optimizer_work(parameters=1.0, precision="fp32", clip=False))
    32.0
    """
    share = parameters if updated is None else updated
    mixed = weight_width(precision) < 4
    grad = gradient_width(precision, gradients)
    steps = [
        *_unscale(share, precision, grad, tensors),
        *(_clip(share) if clip else ()),
        _update(share, optimizer, fused),
    ]
    if mixed:
        copied = share * (4 + (written or weight_width(precision)))
        steps.append(MemoryBound(name="copy to weights", bytes=copied, launches=_launches(share)))
    if gradients != "fresh":
        steps.append(MemoryBound(name="zero gradients", bytes=parameters * grad))
    return tuple(steps)


def weight_casts(
    recipe: Recipe, *, parameters: float, updated: float, tensors: int
) -> Iterator[MemoryBound]:
    """What brings weights of linear layers into a recipe's format, once a step.

    Those gathered in this format are cast as they are written, after a pass over the rank's share
    of fp32 masters for their maxima (Megatron-LM, distrib_optimizer.py, quantize_param_shard), and
    turned where they are whole. All others are cast whole, from bf16.
    """
    if recipe.weights == "pass":
        return
    copies, name = recipe.copies("weight"), "cast weights"
    if not recipe.gathers_weights:
        moved = recipe.cast(parameters, copies, width=2)
        yield MemoryBound(name=name, bytes=moved, launches=recipe.launches(copies) * tensors)
        return
    if recipe.amax:
        yield MemoryBound(name="maxima of weights", bytes=updated * 4, launches=2 * tensors)
    if copies > 1 and not recipe.sharded:
        moved = parameters * 2 * recipe.element
        yield MemoryBound(name="transpose weights", bytes=moved, launches=tensors)


def _unscale(share: float, precision: Precision, grad: int, tensors: int) -> Iterator[MemoryBound]:
    if weight_width(precision) < 4 and grad < 4:
        yield MemoryBound(name="cast gradients", bytes=share * (grad + 4), launches=tensors)
    if precision == "fp16":
        yield MemoryBound(name="unscale gradients", bytes=share * 8, launches=_launches(share))


def _clip(share: float) -> tuple[MemoryBound, ...]:
    return (
        MemoryBound(name="gradient norm", bytes=share * 4, launches=_launches(share) + 1),
        MemoryBound(name="clip gradients", bytes=share * 8, launches=_launches(share)),
    )


def _update(share: float, optimizer: OptimizerName, fused: bool) -> MemoryBound:
    one, each, kernels = _UPDATE[optimizer]
    launches = _launches(share) * (1 if fused else kernels)
    return MemoryBound(name=optimizer, bytes=share * (one if fused else each), launches=launches)


def _launches(elements: float) -> int:
    return max(1, ceil(elements / _ELEMENTS_PER_LAUNCH))
