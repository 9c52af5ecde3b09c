"""The operators of blocks: each is an autograd node with the tensors that it keeps.

Comments count reads and writes of a tensor: a kernel that reads x and writes y makes two.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from sim.config.dataclass import dataclass
from sim.model.execution import DENSE, Execution, ParameterGroup
from sim.model.kernels import TORCH_NORM, Item, Kernel, MemoryBound, Overlap
from sim.program.causes import TENSOR
from sim.program.operations import Collective, Kind

Items = tuple[Item, ...]

MASK = 1  # bytes of a dropout mask's element, a torch.bool


class Matrix(NamedTuple):
    """This rank's shard of a weight matrix, whose inputs have `rows` columns. There are `number`
    matrices of this size. `hidden` is false for embeddings and output layers."""

    rows: int
    columns: int
    number: int = 1
    hidden: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """The kernels of an operator: forward, for the gradient of its input, and for the gradients of
    its weights.

    If a framework fuses a gain's gradient with the input's, `input_gradient` has both. A whole
    backward pass runs `input_gradient`, then `weight_gradient`. `before_weights` gathers a sharded
    input again, and `after_input` sums or scatters the input's gradient. Where the stack `overlaps`
    them, `before_weights` runs beside the kernels of the input's gradient, and `after_input` beside
    the kernels of the weights' gradients.

    Bytes: `saved` lives from the forward pass until the input's gradient, `saved_for_weights` until
    the weights' gradients, and `handed` (the output's gradient) from the input's to the weights'.
    `inputs` must be in memory to run the operator again; `transient` is alive only while it runs.
    The operator itself makes `made` of the saved bytes (masks, statistics, a cast). It reads the
    others from the operator before it, from the operators that `reads` names, or from the input of
    the operator named in `beside`. An operator that `casts` keeps its input in another format.

    Recomputation chooses an operator by its `modules`, CUDA graphs by its `scope`. It has a number
    of `parameters`, all of one `group`, most of them in `matrices`.
    """

    name: str = ""
    modules: tuple[str, ...] = ()
    scope: str = ""
    reads: tuple[str, ...] = ()
    beside: str = ""
    forward: Items = ()
    input_gradient: Items = ()
    weight_gradient: Items = ()
    before_weights: Collective | None = None
    after_input: Collective | None = None
    overlaps: bool = False
    inputs: float = 0.0
    saved: float = 0.0
    saved_for_weights: float = 0.0
    made: float = 0.0
    casts: bool = False
    handed: float = 0.0
    transient: float = 0.0
    parameters: float = 0.0
    matrices: tuple[Matrix, ...] = ()
    group: ParameterGroup = DENSE

    @property
    def keeps(self) -> float:
        """Bytes of the operator's inputs that its backward pass needs."""
        return self.saved + self.saved_for_weights - self.made

    @property
    def backward(self) -> Items:
        """The items of the whole backward pass, of both gradients."""
        return (
            *self._beside(self.before_weights, self.input_gradient),
            *self._beside(self.after_input, self.weight_gradient),
        )

    @property
    def input_pass(self) -> Items:
        """The items of the input's gradient alone."""
        return (*self.input_gradient, *_call(self.after_input))

    @property
    def weight_pass(self) -> Items:
        """The items of the weights' gradients alone."""
        return (*_call(self.before_weights), *self.weight_gradient)

    def _beside(self, collective: Collective | None, items: Items) -> Items:
        kernels = [item for item in items if isinstance(item, Kernel)]
        if collective is None or not self.overlaps or not kernels:
            return (*_call(collective), *items)
        return (Overlap(collective=collective, kernels=tuple(kernels)),)


def _call(collective: Collective | None) -> Items:
    return () if collective is None else (collective,)


def belonging(module: str, operators: Iterable[Operator]) -> tuple[Operator, ...]:
    """Return the operators with `module` added to their modules."""
    return tuple(replace(each, modules=(*each.modules, module)) for each in operators)


def scoped(scope: str, operators: Iterable[Operator]) -> tuple[Operator, ...]:
    """Return the operators in a scope of CUDA graphs, unless they already have a scope."""
    return tuple(replace(each, scope=each.scope or scope) for each in operators)


def kernels_of(items: Iterable[Item]) -> Iterable[Kernel]:
    """Yield the kernels among items, including kernels beside a collective."""
    for item in items:
        if isinstance(item, Overlap):
            yield from item.kernels
        elif isinstance(item, Kernel):
            yield item


def tensor_collective(
    run: Execution,
    kind: Kind,
    name: str,
    elements: float,
    *,
    width: float | None = None,
    quiet: bool = False,
) -> Collective:
    """Return a collective among tensor-parallel ranks on a tensor of `elements` elements. `width`
    is the bytes of an element (default: of an activation)."""
    size = float(elements * (run.width if width is None else width))
    axes = run.sharding.tensor
    return Collective(kind=kind, axes=axes, bytes=size, name=name, cause=TENSOR, quiet=quiet)


# Libraries whose backward norms have a CTA for each SM (ln_bwd_kernel, 132 CTAs on H800:
# traces/deepseek; apex contrib/csrc/layer_norm, from which TransformerEngine's norms come).
_ONE_WAVE = ("transformer-engine", "apex-fast")

_SERIAL_ROWS = 32  # rows of threads in a CTA that sums gains' gradients


def normalise(
    run: Execution, name: str, rows: int, *, width: int = 0, residual: bool = True, into: str = ""
) -> Operator:
    """Return LayerNorm or RMSNorm of `rows` x `width` (0: hidden), which keeps its input. The norm
    in front of the linear layer `into` may write the operand that a recipe wants instead of its
    plain result (`Execution.normed`).

    A fused norm reads x and writes y; backward it reads dy and x and writes dx (3 in all). A second
    kernel sums the gains' gradients (2) and a third finishes the sums (apex
    csrc/layer_norm_cuda_kernel.cu). The norms of TransformerEngine, cuDNN and apex's contrib sum
    the gains' gradients of each CTA in the first kernel, and a second joins these sums
    (ln_bwd_kernel of apex contrib/csrc/layer_norm and of TransformerEngine). Without fusion torch
    composes RMSNorm of an fp32 copy: cast, square, mean, rsqrt, product, cast, gain (`_composed`).
    `Fusion.fp32_norms` has two other ways. `residual` adds the residual stream's gradient to dx.
    """
    columns, hooks = width or run.shape.hidden, run.shape.norm_gains
    elements, width, stream = rows * columns, run.width, run.stream_width
    fused = run.fused("norm") or run.shape.normalisation == "layernorm"
    (ahead, launches), (back, more) = _norm_traffic(run, fused=fused)
    broadcast = 0.0 if fused or run.fusion.fp32_norms else float(elements)
    name = name.replace("norm", "rms norm") if run.shape.normalisation == "rmsnorm" else name
    serial = run.fusion.serial_gains and run.shape.normalisation == "layernorm" and hooks > 0
    gains = 2 * width * elements if serial else 0
    moved = float(back * elements - gains)
    rate, back_rate = TORCH_NORM if fused and run.fusion.norms == "torch" else (1.0, 1.0)
    kernels = [
        MemoryBound(
            name=f"{name} grad",
            bytes=moved,
            strided=3 * broadcast,
            one_wave=fused and run.fusion.norms in _ONE_WAVE,
            launches=more + hooks - serial,
            rate=back_rate,
        )
    ]
    if serial:
        kernels.append(
            MemoryBound(name=f"{name} gains grad", bytes=float(gains), turns=rows / _SERIAL_ROWS)
        )
    if residual and not run.fusion.compiled:
        added = float((width + 2 * stream) * elements)
        kernels.append(MemoryBound(name=f"{name} residual grad", bytes=added))
    ahead_bytes = elements * (ahead + (_operand_written(run, into) if into else 0.0))
    # Unfused, torch also keeps the fp32 copy and the normalised values for the gain's gradient.
    extra = 0 if fused else elements * (4 + width)
    return Operator(
        name=name,
        forward=(
            MemoryBound(
                name=name,
                bytes=float(ahead_bytes),
                strided=2 * broadcast,
                launches=launches,
                rate=rate,
            ),
        ),
        input_gradient=tuple(kernels),
        inputs=float(elements * stream),
        saved=float(elements * stream + extra),
        made=float(extra),
        modules=("layernorm",) if residual else (),
        transient=float(2 * elements * stream),
        parameters=float(columns * hooks),
    )


def _operand_written(run: Execution, linear: str) -> float:
    """Return the bytes per element that a norm writes beyond its plain result, because it casts the
    input of a linear layer."""
    recipe = run.recipe
    if recipe is None or run.normed(linear) != "cast":
        return 0.0
    return (recipe.copies("input") if recipe.block else 1) * recipe.element - run.width


def _norm_traffic(run: Execution, *, fused: bool) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the bytes per element and the kernels of a norm, forward and backward."""
    width, stream = run.width, run.stream_width
    if run.fusion.fp32_norms == "stream":  # mean, variance, y; backward row and column sums, dx
        cast = width if width < stream else 0
        return (4 * stream + cast, 3), (7 * stream, 3)
    if run.fusion.fp32_norms == "copy":  # cast, norm; backward dx, the gains' gradients, cast
        return (width + 4 + 4 + width, 2), (width + 4 + 4 + width + 4 + 4 + width, 4)
    if not fused:
        return _composed(width)
    several = run.fusion.norms in ("torch", "other")
    return (2 * width, 1), (5 * width, 3) if several else (3 * width, 2)


def _composed(width: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the bytes per element and the kernels of torch's RMSNorm in single operations. Forward
    they are the cast to fp32, the square (8 bytes), its mean (4), the product with the reciprocal
    root (8), the cast back and the gain. Backward they are the product with the gain, the gain's
    gradient and its sum, the casts, fp32 products with the root (8) and with the input (12), the
    latter's sum (4), the square's gradient (8 and 8), and the sum of both paths (12). H100
    (traces/tracelens, Qwen) takes 147 us for 9.2 million elements of 36 bytes each."""
    casts = 2 * (width + 4) if width < 4 else 0
    return (casts + 20 + 2 * width, 7), (casts + 52 + 6 * width, 12)


def dropout_add(run: Execution, name: str, rows: int) -> Operator:
    """Return bias, dropout and the residual sum after a row-parallel linear layer. It keeps the
    dropout mask. The fused kernel reads the linear layer's output and the residual, and writes the
    sum and the mask. The backward pass masks dy."""
    model, elements, width = run.shape, rows * run.model.hidden, run.width
    stream, mask = run.stream_width, elements * MASK if model.dropout else 0
    bias = model.bias and not run.fusion.bias_in_gemm
    passes = 1 + (0 if run.fused("bias_dropout_add") else 2 * (bias + model.dropout))
    launches = 1 if run.fused("bias_dropout_add") else 1 + bias + model.dropout
    back = MemoryBound(name=f"{name} grad", bytes=float((stream + width) * elements + mask))
    return Operator(
        name=name,
        forward=(
            MemoryBound(
                name=name,
                bytes=float((passes * width + 2 * stream) * elements + mask),
                launches=launches,
                randoms=float(elements * model.dropout),
                strided=0.0 if run.fused("bias_dropout_add") else float(elements * bias),
            ),
        ),
        input_gradient=(back,) if model.dropout else (),
        inputs=float(elements * width),
        saved=float(mask),
        made=float(mask),
        transient=float(2 * elements * width),
    )
