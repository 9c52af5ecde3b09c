"""The optimizer step on one rank: memory-bound passes over its parameters."""

from collections.abc import Iterable, Iterator
from math import ceil

from sim.model import optimizers
from sim.model.fusion import Gradients
from sim.model.kernels import Gemm, Kernel, MemoryBound, Precision, weight_width
from sim.model.operators import Matrix
from sim.model.optimizers import Moments, Optimizer, hidden_elements
from sim.model.precision import Recipe

# Elements that one launch of apex's multi-tensor kernels covers: 320 blocks of 2048 * 32
# (apex/multi_tensor_apply and csrc/multi_tensor_apply.cuh).
_ELEMENTS_PER_LAUNCH = 320 * 2048 * 32

# Coefficients and number of iterations: Jordan et al. 2024 (Muon), five in bf16.
_ITERATIONS = 5


def gradient_width(precision: Precision, gradients: Gradients) -> int:
    """Bytes of an accumulated gradient's element.

    >>> gradient_width("fp16", "buffer"), gradient_width("bf16", "fused")
    (2, 4)
    """
    return 4 if gradients in ("fused", "fp32-buffer", "clipped") else weight_width(precision)


def optimizer_work(
    *,
    parameters: float,
    updated: float | None = None,
    optimizer: str = "adam",
    matrices: Iterable[Matrix] = (),
    moments: Moments = "fp32",
    precision: Precision = "bf16",
    gradients: Gradients = "fused",
    fused: bool = True,
    by_tensor: bool = False,
    clip: bool = True,
    tensors: int = 1,
    written: float | None = None,
) -> tuple[Kernel, ...]:
    """The step's kernels, in order, on a rank that holds gradients of `parameters` and updates
    `updated`.

    Below fp32 there are fp32 masters: half-precision gradients are cast up first, fp16 is
    unscaled and checked for overflow, the norm is taken and applied (`clip`), moments and masters
    are updated, working weights written back, gradients zeroed unless they are `fresh` in each
    step. `updated` is the share of a distributed optimizer (ZeRO-1). `fused=False` is one kernel
    per arithmetic operation, `by_tensor` for each of the `tensors`, of which copies launch one
    kernel each. `matrices` are those among what is updated, `written` the mean bytes of a working
    weight where a recipe makes it smaller.

    Source: Megatron-LM, megatron/optimizer/optimizer.py (Float16OptimizerWithFloat16Params.step).

    >>> sum(k.bytes for k in optimizer_work(parameters=1.0, precision="fp32", clip=False))
    32.0
    """
    share = parameters if updated is None else updated
    mixed = weight_width(precision) < 4
    grad = gradient_width(precision, gradients)
    steps: list[Kernel] = [
        *_unscale(share, precision, grad, tensors),
        *(_clip(share) if clip else ()),
        *_update(
            optimizers.of(optimizer),
            share,
            list(matrices),
            moments,
            fused,
            least=tensors if by_tensor else 1,
        ),
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
    """Kernels that cast weights of linear layers into a recipe's format, once a step.

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
    if copies > 1 and not recipe.sharded and not recipe.turns_weights:
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


def _update(
    optimizer: Optimizer,
    share: float,
    matrices: list[Matrix],
    moments: Moments,
    fused: bool,
    least: int = 1,
) -> Iterator[Kernel]:
    if optimizer.orthogonalised:
        hidden = min(hidden_elements(matrices), share)
        yield from _update(optimizers.of(optimizer.beside), share - hidden, [], moments, fused)
        for matrix in matrices:
            yield from _orthogonalised(matrix) if matrix.hidden else ()
        share = hidden
    moved = share * optimizer.traffic(fused=fused, moments=moments)
    name = optimizer.name if fused else f"{optimizer.name} for-each"
    launches = max(least, _launches(share)) * (1 if fused else optimizer.kernels)
    yield MemoryBound(name=name, bytes=moved, launches=launches)


def _orthogonalised(matrix: Matrix) -> Iterator[Kernel]:
    """Newton-Schulz: A = X X', B = b A + c A A, X = a X + B X with X no taller than wide, in bf16;
    what is added is added by the products (Jordan et al. 2024)."""
    short, long = sorted((matrix.rows, matrix.columns))
    products = ((short, long), (short, short), (long, short))
    for _ in range(_ITERATIONS):
        for n, k in products:
            yield Gemm(name="newton-schulz", m=short, n=n, k=k, batch=matrix.number)


def _launches(elements: float) -> int:
    return max(1, ceil(elements / _ELEMENTS_PER_LAUNCH))
