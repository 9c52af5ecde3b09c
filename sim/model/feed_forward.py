"""The feed-forward block on one rank: hidden -> ffn, an activation, ffn -> hidden."""

from dataclasses import replace

from sim.model.execution import Execution
from sim.model.kernels import READ, MemoryBound
from sim.model.linear import cached
from sim.model.operators import Operator
from sim.model.tensor_parallel import column_linear, row_linear


def operators(run: Execution, name: str = "ffn", *, normed: bool = False) -> tuple[Operator, ...]:
    """Return hidden -> ffn, the activation, ffn -> hidden; `normed` says that a norm stands right
    in front."""
    return (widen(run, name, normed=normed), activation(run, run.rows * run.ffn), narrow(run, name))


def widen(run: Execution, name: str, *, normed: bool = False) -> Operator:
    """Return the product hidden -> ffn; a gated activation has a second product for the gate."""
    outputs: tuple[int, ...] = (run.ffn,)
    if run.shape.gated_mlp:
        outputs = (2 * run.ffn,) if run.fusion.packed_projections else (run.ffn, run.ffn)
    linear = column_linear(
        run,
        f"{name} in",
        outputs,
        bias=run.shape.biased("ffn"),
        bias_later=run.fused("bias_gelu"),
        normed=normed,
    )
    kept = cached(run, linear.name, run.rows * sum(outputs))
    return replace(linear, forward=(*linear.forward, *kept))


def narrow(run: Execution, name: str) -> Operator:
    return row_linear(run, f"{name} out", run.ffn, bias=run.shape.biased("ffn"))


def activation(run: Execution, elements: float) -> Operator:
    """Return the activation between both products, with `elements` elements in its result."""
    return swiglu(run, elements) if run.shape.gated_mlp else gelu(run, elements)


def gelu(run: Execution, elements: float) -> Operator:
    """Return a GELU, which keeps its input. It reads x and writes y forward; it reads x and dy and
    writes dx backward. Composed of single operations, 0.5 x (1 + tanh(k (x + c x^3))) is eight
    kernels of 18 passes forward. Its backward pass has 11 kernels of 28 passes, among them three
    for pow and two that sum x's gradients. It keeps x, tanh, 1 + tanh and x / 2 (torch's autograd;
    transformers 4.12, activations.py, NewGELUActivation)."""
    size = float(elements * run.width)
    composed = run.shape.family in run.fusion.composed_gelu and not run.fusion.compiled
    passes, launches, further = ((18, 28), (8, 11), 3 * size) if composed else ((2, 3), (1, 1), 0.0)
    forward, backward = (
        MemoryBound(name=name, bytes=count * size, launches=often)
        for name, count, often in zip(("gelu", "gelu grad"), passes, launches, strict=True)
    )
    return Operator(
        name="gelu",
        forward=(forward,),
        input_gradient=(backward,),
        inputs=elements * run.cached_width,
        saved=elements * run.cached_width + further,
        made=further,
        transient=2 * size,
        parameters=float(run.shape.activation_weights),
    )


def swiglu(run: Execution, elements: float) -> Operator:
    """Return silu(gate) * up (Shazeer 2020). It keeps gate and up, and if unfused also silu(gate).
    The fused kernel reads two tensors and writes one; backward it reads three and writes two.
    Unfused, silu and the product are two kernels. Backward there are two products, silu's gradient,
    and a join of both gradients. Unfused kernels read halves of a row, which have gaps between them
    in memory."""
    size = float(elements * run.width)
    fused = run.fused("swiglu")
    halves = run.fusion.packed_projections and not fused
    joined = 4 if run.fusion.packed_projections else 0
    clamp = _clamp(run, elements)
    forward = MemoryBound(
        name="swiglu",
        bytes=(3 if fused else 5) * size,
        strided=2.0 * elements * halves,
        launches=1 if fused else 2,
    )
    backward = MemoryBound(
        name="swiglu grad",
        bytes=(5 if fused else 9 + joined) * size,
        strided=(2 + 2 * run.joined) * elements * halves,
        launches=1 if fused else 3 + (joined > 0),
    )
    further = (0.0 if fused else size) + clamp.made
    return Operator(
        name="swiglu",
        forward=(*clamp.forward, forward),
        input_gradient=(backward, *clamp.input_gradient),
        inputs=2 * elements * run.cached_width,
        saved=2 * elements * run.cached_width + further,
        made=further,
        transient=3 * size,
    )


def _clamp(run: Execution, elements: float) -> Operator:
    """Return the clamps of a gated activation's input: the gate is clamped from above, the gated
    half on both sides. They are separate kernels in front of a fused activation, which keeps their
    result (Megatron-LM, megatron/core/fusions/fused_bias_geglu.py, weighted_bias_quick_geglu_impl:
    `torch.cat((x_glu.clamp(...), ...))`).

    Forward, each half is read and written, and the join reads and writes both. Backward, each
    comparison reads a half and writes truth values; the gated half has two comparisons, whose truth
    values are joined. With these values a kernel for each half selects its gradient (torch,
    csrc/autograd/FunctionsManual.cpp, clamp_backward). The join reads and writes both gradients.
    Halves of a row have gaps between them in memory. The host waits while the activation's offset
    is copied to the device: `torch.tensor(linear_offset)`.
    """
    if not run.shape.glu_limit or run.fused("clamp"):
        return Operator()
    width = run.width
    one, two = (width + 1) + (1 + 2 * width), 2 * (width + 1) + 3 + (1 + 2 * width)
    joined = 4.0 * elements * width
    clamps = MemoryBound(
        name="clamp", bytes=4.0 * elements * width, strided=2.0 * elements, launches=2
    )
    choices = MemoryBound(
        name="clamp grad", bytes=elements * (one + two), strided=5.0 * elements, launches=6
    )
    wait = (READ,) if run.fusion.host_counts else ()
    return Operator(
        forward=(*wait, clamps, MemoryBound(name="clamp join", bytes=joined)),
        input_gradient=(choices, MemoryBound(name="clamp grad join", bytes=joined)),
        made=2.0 * elements * width,
    )
