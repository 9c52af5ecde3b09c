"""Optimizers by their states and their traffic: one table for memory and for step time."""

from collections.abc import Iterable
from math import ceil
from typing import Literal

from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.schema import nearest
from sim.model.operators import Matrix

Moments = Literal["fp32", "bf16", "fp8"]

# Bytes of an element of a moment. Megatron-LM's --use-precision-aware-optimizer keeps them in
# fewer (exp_avg_dtype, exp_avg_sq_dtype); eight-bit ones have a scale for each tensor.
_WIDTH: dict[Moments, float] = {"fp32": 4.0, "bf16": 2.0, "fp8": 1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """Bytes and operations of an optimizer for each parameter.

    States: `vectors` as large as the parameters, of fp32 unless `width` bytes an element say
    otherwise; a `factored` second moment is the sums of each matrix's rows and columns in fp32, a
    vector's is whole. One fused kernel reads gradient, weight and states and writes weight and
    states; `extra` bytes go beyond that. One kernel for each arithmetic operation moves `each`
    bytes in `kernels` of them, with states in fp32. With `orthogonalised` momentum hidden matrices
    alone are updated so, all else by the optimizer `beside`.
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
        """Whether the precision of its states is chosen."""
        return self.vectors > 0 and self.width == 0.0

    def element(self, moments: Moments) -> float:
        """Bytes of an element of a state."""
        return self.width or _WIDTH[moments]

    def state_bytes(
        self, parameters: float, matrices: Iterable[Matrix], moments: Moments = "fp32"
    ) -> float:
        """Bytes of all states of so many parameters, most of them in matrices.

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
        """Bytes moved for each updated parameter: gradient and weight read, weight written (12),
        states read and written."""
        if not fused:
            return self.each - 2 * self.vectors * (4.0 - self.element(moments))
        return 12.0 + 2 * self.vectors * self.element(moments) + self.extra


def hidden_elements(matrices: Iterable[Matrix]) -> float:
    """Elements of matrices that are no embeddings or output layers."""
    return _elements(matrix for matrix in matrices if matrix.hidden)


def _elements(matrices: Iterable[Matrix]) -> float:
    return float(sum(matrix.rows * matrix.columns * matrix.number for matrix in matrices))


def of(name: str, *, where: str = "plan, optimizer") -> Optimizer:
    """An optimizer by its name. Raises `InputError`."""
    if name not in OPTIMIZERS:
        raise InputError(where, f"no optimizer named {name!r}", nearest(name, list(OPTIMIZERS)))
    return OPTIMIZERS[name]


def shares(matrices: Iterable[Matrix], ranks: int) -> list[Matrix]:
    """The matrices that a rank of so many updates where each is updated by one of them.

    >>> shares([Matrix(4, 8, number=10)], 4)
    [Matrix(rows=4, columns=8, number=3, hidden=True)]
    """
    return [matrix._replace(number=ceil(matrix.number / ranks)) for matrix in matrices]


# Unfused, in torch's for-each form: lerp 12, decay 8, product 8, addcmul 12, sqrt 8, quotient 8,
# epsilon 8, addcdiv 16 for Adam (torch/optim/adam.py, _multi_tensor_adam); others in the same way.
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
    # iterations as matrix products (`sim.model.optimizer`), then the weights 10.
    Optimizer(
        name="muon", vectors=1, extra=12.0, each=42.0, kernels=4, orthogonalised=True,
        beside="adam",
    ),
)  # fmt: skip
OPTIMIZERS = {optimizer.name: optimizer for optimizer in _TABLE}
