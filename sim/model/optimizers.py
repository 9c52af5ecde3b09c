"""Optimizers with their states and memory traffic, and the kernels of their step on one rank."""

from collections.abc import Iterable, Iterator
from math import ceil
from typing import Literal

from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.model.fusion import Gradients
from sim.model.kernels import Kernel, MemoryBound, Precision, weight_width
from sim.model.operators import Matrix

Moments = Literal["fp32", "bf16", "fp8"]

# Bytes of an element of a moment. Megatron-LM's --use-precision-aware-optimizer keeps moments in
# fewer bytes (exp_avg_dtype, exp_avg_sq_dtype); eight-bit moments have a scale for each tensor.
_WIDTH: dict[Moments, float] = {"fp32": 4.0, "bf16": 2.0, "fp8": 1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """Bytes and operations of an optimizer for each parameter.

    Its states are `vectors` vectors as large as the parameters, in fp32 unless `width` gives other
    bytes per element. A `factored` second moment keeps, for each matrix, the fp32 sums of rows and
    of columns; parameters outside of matrices keep a whole moment. A fused step is one kernel that
    reads gradient, weight and states, writes weight and states, and moves `extra` further bytes. An
    unfused step has a kernel for each arithmetic operation: `kernels` kernels that together move
    `each` bytes, with states in fp32. If momentum is `orthogonalised` (Muon), hidden matrices are
    updated in this way, and all other parameters by the optimizer named in `beside`.
    """

    name: str
    vectors: int = 0
    width: float = 0.0
    factored: bool = False
    extra: float = 0.0
    each: float = 12.0
    kernels: int = 1
    orthogonalised: bool = False
    beside: str = ""

    @property
    def takes_moments(self) -> bool:
        """Whether a plan may choose the precision of the optimizer's states."""
        return self.vectors > 0 and self.width == 0.0

    def element(self, moments: Moments) -> float:
        """Return the bytes of an element of a state."""
        return self.width or _WIDTH[moments]

    def state_bytes(
        self, parameters: float, matrices: Iterable[Matrix], moments: Moments = "fp32"
    ) -> float:
        """Return the bytes of all states of `parameters` parameters, most of them in `matrices`.

        >>> of("adam").state_bytes(100.0, ()), of("adafactor").state_bytes(110.0, [Matrix(10, 10)])
        (800.0, 120.0)
        """
        matrices = list(matrices)
        if self.orthogonalised:
            hidden = hidden_elements(matrices)
            rest = of(self.beside).state_bytes(parameters - hidden, (), moments)
            return hidden * self.vectors * self.element(moments) + rest
        kept = parameters * self.vectors * self.element(moments)
        if self.factored:
            sums = sum((matrix.rows + matrix.columns) * matrix.number for matrix in matrices)
            kept += 4.0 * (sums + parameters - _elements(matrices))
        return kept

    def traffic(self, *, fused: bool, moments: Moments = "fp32") -> float:
        """Return the bytes moved for each updated parameter: gradient and weight are read and the
        weight is written (12), states are read and written."""
        if not fused:
            return self.each - 2 * self.vectors * (4.0 - self.element(moments))
        return 12.0 + 2 * self.vectors * self.element(moments) + self.extra


def hidden_elements(matrices: Iterable[Matrix]) -> float:
    """Return the number of elements in matrices other than embeddings and output layers."""
    return _elements(matrix for matrix in matrices if matrix.hidden)


def _elements(matrices: Iterable[Matrix]) -> float:
    return float(sum(matrix.rows * matrix.columns * matrix.number for matrix in matrices))


def of(name: str, *, where: str = "plan, optimizer") -> Optimizer:
    """Return the optimizer of a name. Raises `InputError`."""
    if name not in OPTIMIZERS:
        raise InputError.unknown(where, f"no optimizer named {name!r}", name, list(OPTIMIZERS))
    return OPTIMIZERS[name]


def shares(matrices: Iterable[Matrix], ranks: int) -> list[Matrix]:
    """Return the matrices that one of `ranks` ranks updates if each matrix belongs to one rank.

    >>> shares([Matrix(4, 8, number=10)], 4)
    [Matrix(rows=4, columns=8, number=3, hidden=True)]
    """
    return [matrix._replace(number=ceil(matrix.number / ranks)) for matrix in matrices]


# The numbers in comments are bytes per parameter. Unfused Adam in torch's for-each form: lerp 12,
# decay 8, product 8, addcmul 12, sqrt 8, quotient 8, epsilon 8, addcdiv 16 (torch/optim/adam.py,
# _multi_tensor_adam); `each` is counted in the same way for other optimizers.
_TABLE = (
    Optimizer(name="sgd"),
    # torch/optim/sgd.py: momentum 12, weights 12.
    Optimizer(name="momentum", vectors=1, each=24.0, kernels=2),
    Optimizer(name="nesterov", vectors=1, each=36.0, kernels=3),
    # torch/optim/adagrad.py: addcmul 12, sqrt 8, epsilon 8, addcdiv 16.
    Optimizer(name="adagrad", vectors=1, each=44.0, kernels=4),
    # torch/optim/rmsprop.py: decay 8, addcmul 12, sqrt 8, epsilon 8, addcdiv 16.
    Optimizer(name="rmsprop", vectors=1, each=52.0, kernels=5),
    Optimizer(name="adam", vectors=2, each=80.0, kernels=8),
    # Dettmers et al. 2021: one byte and an fp32 scale for each block of 256 (bitsandbytes, optim/
    # optimizer.py; torchao/optim/adam.py); one kernel reads and writes both.
    Optimizer(name="adam-8bit", vectors=2, width=1.0 + 4.0 / 256, each=28.0),
    # You et al. 2020, algorithm 2; apex csrc/multi_tensor_lamb.cu: moments and update 28, two
    # norms 8, weights 12.
    Optimizer(name="lamb", vectors=2, extra=20.0, each=100.0, kernels=14),
    # You et al. 2017: norms of weights and gradients 8 before the update; unfused 8, decay 12,
    # scale 8, momentum 12, weights 12.
    Optimizer(name="lars", vectors=1, extra=8.0, each=52.0, kernels=6),
    # Shazeer and Stern 2018, algorithm 4 without a first moment: sums of squares of rows and of
    # columns 8 (the gradient twice), update 8, its root mean square 4, then applied 12; unfused as
    # transformers/optimization.py, class Adafactor: squares 8, means 8, factors 8, product 12,
    # root mean square 4, clipping 8, rate 8, weights 12.
    Optimizer(name="adafactor", factored=True, extra=20.0, each=68.0, kernels=12),
    # Jordan et al. 2024: momentum 12 and Nesterov's sum 12 (to bf16: 10), five Newton-Schulz
    # iterations as matrix products (`sim.model.optimizers`), then the weights 10.
    Optimizer(
        name="muon", vectors=1, extra=12.0, each=42.0, kernels=4, orthogonalised=True,
        beside="adam",
    ),
)  # fmt: skip
OPTIMIZERS = {optimizer.name: optimizer for optimizer in _TABLE}


# Elements that one launch of apex's multi-tensor kernels covers: 320 blocks of 2048 * 32
# (apex/multi_tensor_apply and csrc/multi_tensor_apply.cuh).
_ELEMENTS_PER_LAUNCH = 320 * 2048 * 32


def gradient_width(precision: Precision, gradients: Gradients) -> int:
    """Return the bytes of an element of an accumulated gradient.

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
    """Return the kernels of an optimizer step, in order, on a rank that holds the gradients of
    `parameters` parameters and updates `updated` of them.

    Below fp32 there are fp32 master weights. Half-precision gradients are cast to fp32, fp16
    gradients are also unscaled and checked for overflow, and the gradient norm is taken and applied
    (`clip`). Moments and masters are updated and working weights written. Gradients are zeroed,
    unless each step has new ones ("fresh"). `updated` is a rank's share under a distributed
    optimizer (ZeRO-1). `fused=False` runs one kernel per arithmetic operation, and `by_tensor` one
    for each of the `tensors` parameter tensors; casts of gradients always take a kernel per tensor.
    `matrices` are the updated matrices. `written` is a working weight's mean bytes.

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
            of(optimizer),
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
        from sim.model.muon import orthogonalised

        hidden = min(hidden_elements(matrices), share)
        yield from _update(of(optimizer.beside), share - hidden, [], moments, fused)
        for matrix in matrices:
            yield from orthogonalised(matrix) if matrix.hidden else ()
        share = hidden
    moved = share * optimizer.traffic(fused=fused, moments=moments)
    name = optimizer.name if fused else f"{optimizer.name} for-each"
    launches = max(least, _launches(share)) * (1 if fused else optimizer.kernels)
    yield MemoryBound(name=name, bytes=moved, launches=launches)


def _launches(elements: float) -> int:
    return max(1, ceil(elements / _ELEMENTS_PER_LAUNCH))
