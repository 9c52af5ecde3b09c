"""The operators that layers are made of: one autograd node each, with what it keeps.

Bytes are counted in passes over a tensor: a kernel that reads x and writes y makes two.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from sim.model.execution import Execution
from sim.model.kernel import Gemm, Item, Kernel, Overlap, Stream
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


def accumulate(run: Execution, name: str, weights: float) -> tuple[Kernel, ...]:
    """Add a fresh gradient to what earlier micro-steps left: read both, write one.

    torch's AccumulateGrad and a buffer of the weights' precision move three times the width; an
    fp32 buffer (Megatron-LM accumulate_allreduce_grads_in_fp32, nanotron) the width and 8 bytes.
    """
    if run.fusion.gradients == "fused":
        return ()
    buffer = 8 if run.fusion.gradients == "fp32-buffer" else 2 * run.width
    return (Stream(name=f"{name} accumulate", bytes=float(weights * (run.width + buffer))),)


def products(
    run: Execution, name: str, rows: int, inputs: int, outputs: int
) -> tuple[Gemm, Gemm, Gemm]:
    """y = x W, dx = dy W', dW = x' dy with x (rows, inputs) and W (inputs, outputs)."""
    fused = run.fusion.gradients == "fused"
    precision = run.precision
    return (
        Gemm(name=name, m=rows, n=outputs, k=inputs, precision=precision),
        Gemm(name=f"{name} dgrad", m=rows, n=inputs, k=outputs, precision=precision),
        Gemm(
            name=f"{name} wgrad",
            m=inputs,
            n=outputs,
            k=rows,
            precision=precision,
            accumulate=fused,
        ),
    )


def quantise(run: Execution, name: str, elements: float) -> tuple[Kernel, ...]:
    """The casts in front of fp8 GEMMs: the maximum, then the cast, plain and transposed."""
    if run.precision != "fp8":
        return ()
    amax, cast = elements * run.width, elements * (run.width + 2)
    launches = 2 if run.fusion.compiled else 3
    return (Stream(name=f"{name} to fp8", bytes=float(amax + cast), launches=launches),)


def bias_add(run: Execution, name: str, elements: float) -> tuple[Kernel, ...]:
    if run.fusion.bias_in_gemm or run.fusion.compiled:
        return ()
    return (Stream(name=f"{name} bias", bytes=float(2 * elements * run.width)),)


def bias_gradient(run: Execution, name: str, elements: float) -> tuple[Kernel, ...]:
    """A sum over the rows, and its accumulation."""
    return (Stream(name=f"{name} bias grad", bytes=float(elements * run.width), launches=2),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """One linear layer on one rank: `rows` x `inputs` -> the widths of `outputs`, in one or several
    GEMMs that share the input. `bias_later` leaves adding it to the kernel behind.
    """

    run: Execution
    name: str
    rows: int
    inputs: int
    outputs: tuple[int, ...]
    bias: bool = False
    bias_later: bool = False

    @property
    def weights(self) -> int:
        return self.inputs * sum(self.outputs)

    @property
    def forward(self) -> tuple[Kernel, ...]:
        run, elements = self.run, self.rows * sum(self.outputs)
        gemms = [products(run, self.name, self.rows, self.inputs, n)[0] for n in self.outputs]
        casts = quantise(run, f"{self.name} input", self.rows * self.inputs)
        casts += quantise(run, f"{self.name} weight", self.weights)
        added = self.bias and not self.bias_later
        return (*casts, *gemms, *(bias_add(run, self.name, elements) if added else ()))

    @property
    def input_gradient(self) -> tuple[Kernel, ...]:
        """dx, summed over the GEMMs that share x."""
        run = self.run
        gemms = [products(run, self.name, self.rows, self.inputs, n)[1] for n in self.outputs]
        casts = quantise(run, f"{self.name} grad", self.rows * sum(self.outputs))
        sums = [
            Stream(
                name=f"{self.name} dgrad sum", bytes=float(3 * self.rows * self.inputs * run.width)
            )
        ] * (len(gemms) - 1)
        return (*casts, *gemms, *sums)

    @property
    def weight_gradient(self) -> tuple[Kernel, ...]:
        run, kernels = self.run, []
        for n in self.outputs:
            kernels += [
                products(run, self.name, self.rows, self.inputs, n)[2],
                *accumulate(run, self.name, self.inputs * n),
            ]
        if self.bias:
            kernels += bias_gradient(run, self.name, self.rows * sum(self.outputs))
        return tuple(kernels)

    @property
    def transient(self) -> float:
        """Backward: dy and dx at once, and dW until it is accumulated."""
        fresh = 0 if self.run.fusion.gradients == "fused" else self.inputs * max(self.outputs)
        return float((self.rows * (self.inputs + sum(self.outputs)) + fresh) * self.run.width)


def column_linear(
    run: Execution,
    name: str,
    outputs: tuple[int, ...],
    *,
    bias: bool = False,
    bias_later: bool = False,
) -> Operator:
    """Megatron's column-parallel linear: whole input of `hidden`, outputs divided (this rank's).

    Without sequence parallelism backward all-reduces dx (operator f, Shoeybi et al. 2019,
    section 3); with it forward all-gathers x, backward gathers x again, of which only a share is
    kept, and reduce-scatters dx (Korthikanti et al. 2022, section 4.2.2).
    """
    hidden = run.model.hidden
    linear = Linear(
        run=run,
        name=name,
        rows=run.rows,
        inputs=hidden,
        outputs=outputs,
        bias=bias,
        bias_later=bias_later,
    )
    whole = run.rows * hidden
    gathered = whole * run.width if run.local < run.rows else 0
    return Operator(
        forward=(*_enter(run, name, whole), *linear.forward),
        backward=_column_backward(run, linear, whole),
        saved=float(run.local * hidden * run.width),
        transient=linear.transient + gathered,
        parameters=float(linear.weights + (sum(outputs) if bias else 0)),
    )


def _enter(run: Execution, name: str, elements: int) -> tuple[Item, ...]:
    if not run.sharding.sequence_parallel:
        return ()
    return (tensor_collective(run, "all_gather", f"{name} all-gather", elements),)


def _column_backward(run: Execution, linear: Linear, elements: int) -> tuple[Item, ...]:
    dgrad, wgrad = linear.input_gradient, linear.weight_gradient
    if run.tp == 1:
        return (*dgrad, *wgrad)
    if not run.sharding.sequence_parallel:
        reduce = tensor_collective(run, "all_reduce", f"{linear.name} grad all-reduce", elements)
        return (*dgrad, *beside(run, reduce, wgrad))
    gather = tensor_collective(run, "all_gather", f"{linear.name} input all-gather", elements)
    scatter = tensor_collective(run, "reduce_scatter", f"{linear.name} grad scatter", elements)
    return (*beside(run, gather, dgrad), *beside(run, scatter, wgrad))


def beside(run: Execution, collective: Collective, kernels: tuple[Kernel, ...]) -> tuple[Item, ...]:
    """The collective hidden behind the kernels where the stack does so, else before them."""
    if run.fusion.overlap_tensor:
        return (Overlap(collective=collective, kernels=kernels),)
    return (collective, *kernels)


def row_linear(run: Execution, name: str, inputs: int, *, bias: bool = False) -> Operator:
    """Megatron's row-parallel linear: divided input, whole output of `hidden` summed over ranks.

    Forward all-reduces (operator g), or reduce-scatters under sequence parallelism, whose
    backward gathers dy. The bias is added by the dropout and residual sum behind.
    """
    hidden = run.model.hidden
    linear = Linear(
        run=run,
        name=name,
        rows=run.rows,
        inputs=inputs,
        outputs=(hidden,),
        bias=bias,
        bias_later=True,
    )
    whole = run.rows * hidden
    kernels = (*linear.input_gradient, *linear.weight_gradient)
    return Operator(
        forward=(*linear.forward, *_leave(run, name, whole)),
        backward=(*_enter(run, f"{name} grad", whole), *kernels),
        saved=float(run.rows * inputs * run.width),
        transient=linear.transient,
        parameters=float(linear.weights + (hidden if bias else 0)),
    )


def _leave(run: Execution, name: str, elements: int) -> tuple[Item, ...]:
    if run.tp == 1:
        return ()
    if run.sharding.sequence_parallel:
        return (tensor_collective(run, "reduce_scatter", f"{name} reduce-scatter", elements),)
    return (tensor_collective(run, "all_reduce", f"{name} all-reduce", elements),)


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
    parameters = run.model.norm_parameters
    hooks = parameters // run.model.hidden
    kernels = [
        Stream(
            name=f"{name} grad", bytes=float(back[0] * elements * width), launches=back[1] + hooks
        )
    ]
    if residual and not run.fusion.compiled:
        kernels.append(Stream(name=f"{name} residual grad", bytes=float(3 * elements * width)))
    # Unfused, torch also keeps the fp32 copy and the normalised values for the gain's gradient.
    extra = 0 if fused else elements * (4 + width)
    return Operator(
        forward=(Stream(name=name, bytes=float(ahead[0] * elements * width), launches=ahead[1]),),
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
    passes = 3 + (0 if run.fused("bias_dropout_add") else 2 * (model.bias + model.dropout))
    launches = 1 if run.fused("bias_dropout_add") else 1 + model.bias + model.dropout
    back = Stream(name=f"{name} grad", bytes=float(2 * elements * width + mask))
    return Operator(
        forward=(
            Stream(name=name, bytes=float(passes * elements * width + mask), launches=launches),
        ),
        backward=(back,) if model.dropout else (),
        saved=float(mask),
        transient=float(2 * elements * width),
    )
