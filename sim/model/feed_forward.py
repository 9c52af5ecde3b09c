"""The feed-forward block on one rank: hidden -> ffn, an activation, ffn -> hidden."""

from dataclasses import replace

from sim.model.execution import Execution
from sim.model.kernels import MemoryBound
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
    if not run.shape.gated_mlp:
        return gelu(run, elements)
    from sim.model.swiglu import swiglu

    return swiglu(run, elements)


def gelu(run: Execution, elements: float) -> Operator:
    """Return a GELU, which keeps its input. It reads x and writes y forward; it reads x and dy and
    writes dx backward. Composed of single operations, 0.5 x (1 + tanh(k (x + c x^3))) is eight
    kernels forward, with 18 reads and writes. Its backward pass has 11 kernels with 28, among them
    three for pow and two that sum x's gradients. It keeps x, tanh, 1 + tanh and x / 2 (torch's
    autograd; transformers 4.12, activations.py, NewGELUActivation)."""
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
