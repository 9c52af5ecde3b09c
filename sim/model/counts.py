"""Parameters and model FLOPs of a model, as publications count them.

Both are read off the operators that the simulation runs, on a rank that holds the whole model.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from sim.config.plugins import remembered
from sim.model.block import operators_of
from sim.model.execution import EXPERTS, Execution, Sharding
from sim.model.fusion import Fusion
from sim.model.kernels import Attention, Gemm, Item
from sim.model.kinds import FOLDER, specialised
from sim.model.model import Model
from sim.model.operators import Operator, kernels_of


@remembered(FOLDER)
def parameters(model: Model) -> int:
    """Return the number of parameters as publications count it, with a tied embedding once.

    >>> from sim.model.reading import load
    >>> f"{parameters(load('gpt3-175b')) / 1e9:.1f}"
    '174.6'
    """
    blocks = _operators(whole(model, 1))
    return round(
        sum(
            often * operator.parameters
            for kind, often in Counter(model.row).items()
            for operator in blocks[kind]
        )
    )


@remembered(FOLDER)
def active_parameters(model: Model) -> int:
    """Return the number of parameters that a token uses, without experts that it does not take.

    >>> from sim.model.reading import load
    >>> f"{active_parameters(load('mixtral-8x7b')) / 1e9:.1f}"
    '12.9'
    """
    run = whole(model, 1)
    blocks, active = _operators(run), 0.0
    for kind, often in Counter(model.row).items():
        settings = specialised(kind, run)[1].block
        chosen = getattr(settings, "chosen", 1.0)  # experts
        for operator in blocks[kind]:
            active += often * operator.parameters * (chosen if operator.group == EXPERTS else 1.0)
    return round(active)


@remembered(FOLDER)
def model_flops(model: Model, batch: int, *, frozen: bool = False) -> float:
    """Return the matrix-multiplication FLOPs of one step of `batch` sequences, forward and back.

    A step is 3 x the forward pass, or 2 x if the weights are `frozen` and have no gradients. Causal
    attention counts in full (PaLM, arXiv 2204.02311, appendix B; Narayanan et al. 2021, equation 3
    without its recomputation). Look-ups of embeddings do not count, nor do empty slots of experts
    with a capacity or the tokens that these experts drop.

    >>> from sim.model.reading import load
    >>> gpt = load("megatron-39b")
    >>> b, s, l, h, v = 4, gpt.seq, gpt.layers, gpt.hidden, gpt.vocab
    >>> paper = 72 * b * s * l * h * h * (1 + s / (6 * h) + v / (12 * l * h))
    >>> abs(model_flops(gpt, b) / paper - 1) < 1e-12
    True
    """
    each = block_flops(replace(whole(model, batch), empty_slots=False))
    forward = sum(often * each[kind] for kind, often in Counter(model.row).items())
    return (2.0 if frozen else 3.0) * forward


def block_flops(run: Execution) -> dict[str, float]:
    """Return the forward FLOPs of each kind of block; causal attention counts in full."""
    return {kind: full_flops(_forward(each)) for kind, each in _operators(run).items()}


def full_flops(items: Iterable[Item]) -> float:
    """Return the FLOPs of the products among some items; causal attention counts in full."""
    total = 0.0
    for kernel in kernels_of(items):
        if isinstance(kernel, Attention):
            total += kernel.full_flops
        elif isinstance(kernel, Gemm):
            total += kernel.flops
    return total


def weights(model: Model, kind: str) -> float:
    """Return the number of elements of the matrices that multiply a block's tokens."""
    kernels = kernels_of(_forward(_operators(whole(model, 1))[kind]))
    gemms = [kernel for kernel in kernels if isinstance(kernel, Gemm)]
    return float(sum(gemm.n * gemm.k for gemm in gemms if gemm.batch == 1))


def whole(model: Model, batch: int) -> Execution:
    """Return the execution of the whole model on one rank."""
    return Execution(
        model=model, microbatch=batch, sharding=Sharding(), precision="bf16", fusion=Fusion()
    )


@remembered(FOLDER)
def _operators(run: Execution) -> Mapping[str, Sequence[Operator]]:
    """Return the operators of each kind of block."""
    return {kind: operators_of(kind, run) for kind in dict.fromkeys(run.model.row)}


def _forward(operators: Iterable[Operator]) -> list[Item]:
    return [item for operator in operators for item in operator.forward]
