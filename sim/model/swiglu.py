"""SwiGLU: the gated activation between the two products of a feed-forward block."""

from sim.model.execution import Execution
from sim.model.kernels import READ, MemoryBound
from sim.model.operators import Operator


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
    gate, half = (width + 1) + (1 + 2 * width), 2 * (width + 1) + 3 + (1 + 2 * width)
    joined = 4.0 * elements * width
    clamps = MemoryBound(
        name="clamp", bytes=4.0 * elements * width, strided=2.0 * elements, launches=2
    )
    choices = MemoryBound(
        name="clamp grad", bytes=elements * (gate + half), strided=5.0 * elements, launches=6
    )
    wait = (READ,) if run.fusion.host_counts else ()
    return Operator(
        forward=(*wait, clamps, MemoryBound(name="clamp join", bytes=joined)),
        input_gradient=(choices, MemoryBound(name="clamp grad join", bytes=joined)),
        made=2.0 * elements * width,
    )
