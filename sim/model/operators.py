"""The operators that layers are made of: one autograd node each, with what it keeps.

Bytes are counted in passes over a tensor: a kernel that reads x and writes y makes two.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from sim.model.execution import Execution
from sim.model.kernels import Item, MemoryBound
from sim.program import Collective, Kind

MASK = 1  # bytes of a dropout mask's element, a torch.bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """Items run forward and backward, bytes kept between, bytes alive only while it runs."""

    forward: tuple[Item, ...] = ()
    backward: tuple[Item, ...] = ()
    saved: float = 0.0
    transient: float = 0.0
    parameters: float = 0.0


def forward(operators: Iterable[Operator]) -> tuple[Item, ...]:
    return tuple(item for operator in operators for item in operator.forward)


def backward(operators: Iterable[Operator]) -> tuple[Item, ...]:
    return tuple(item for operator in reversed(list(operators)) for item in operator.backward)


def tensor_collective(run: Execution, kind: Kind, name: str, elements: float) -> Collective:
    """A collective among tensor-parallel ranks on a tensor of so many elements."""
    return Collective(
        kind=kind,
        axes=("tp",),
        bytes=float(elements * run.width),
        name=name,
        cause="tensor communication",
    )


def normalise(run: Execution, name: str, rows: int, *, residual: bool = True) -> Operator:
    """LayerNorm or RMSNorm of `rows` x hidden; keeps its input.

    Fused: forward reads x and writes y; backward reads dy and x, writes dx (3 passes), and sums
    the gains' gradients in a second kernel (2 passes) that a third finishes (apex
    csrc/layer_norm_cuda_kernel.cu). Otherwise torch composes RMSNorm of an fp32 copy: cast, square,
    mean, rsqrt, product, cast, gain. `residual` adds the residual stream's gradient to dx.
    """
    elements, width = rows * run.model.hidden, run.width
    fused = run.fused("norm") or run.model.normalisation == "layernorm"
    ahead, back = ((2, 1), (5, 3)) if fused else ((12, 7), (20, 12))
    name = name.replace("norm", "rms norm") if run.model.normalisation == "rmsnorm" else name
    parameters = run.model.norm_parameters
    hooks = parameters // run.model.hidden
    kernels = [
        MemoryBound(
            name=f"{name} grad", bytes=float(back[0] * elements * width), launches=back[1] + hooks
        )
    ]
    if residual and not run.fusion.compiled:
        kernels.append(MemoryBound(name=f"{name} residual grad", bytes=float(3 * elements * width)))
    # Unfused, torch also keeps the fp32 copy and the normalised values for the gain's gradient.
    extra = 0 if fused else elements * (4 + width)
    return Operator(
        forward=(
            MemoryBound(name=name, bytes=float(ahead[0] * elements * width), launches=ahead[1]),
        ),
        backward=tuple(kernels),
        saved=float(elements * width + extra),
        transient=float(2 * elements * width),
        parameters=float(parameters),
    )


def dropout_add(run: Execution, name: str, rows: int) -> Operator:
    """Bias, dropout and the residual sum behind a row-parallel linear; keeps the mask.

    Fused: reads the linear's output and the residual, writes sum and mask. Backward masks dy.
    """
    model, elements, width = run.model, rows * run.model.hidden, run.width
    mask = elements * MASK if model.dropout else 0
    bias = model.bias and not run.fusion.bias_in_gemm
    passes = 3 + (0 if run.fused("bias_dropout_add") else 2 * (bias + model.dropout))
    launches = 1 if run.fused("bias_dropout_add") else 1 + bias + model.dropout
    back = MemoryBound(name=f"{name} grad", bytes=float(2 * elements * width + mask))
    return Operator(
        forward=(
            MemoryBound(
                name=name,
                bytes=float(passes * elements * width + mask),
                launches=launches,
                randoms=float(elements * model.dropout),
            ),
        ),
        backward=(back,) if model.dropout else (),
        saved=float(mask),
        transient=float(2 * elements * width),
    )
