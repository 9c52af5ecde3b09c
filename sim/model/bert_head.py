"""BERT's head: predictions of masked tokens, and of the next sentence."""

from dataclasses import replace

from sim.model.execution import Execution
from sim.model.kernels import MemoryBound
from sim.model.linear import Linear
from sim.model.operators import Operator, normalise


def gathered(run: Execution, rows: int) -> Operator:
    """Return the operator that picks `rows` tokens; all other tokens have zeros as gradients."""
    size = run.model.hidden * run.width
    return Operator(
        name="gather masked",
        forward=(MemoryBound(name="gather masked", bytes=2.0 * rows * size),),
        input_gradient=(
            MemoryBound(
                name="scatter masked", bytes=float((run.rows + 2 * rows) * size), launches=2
            ),
        ),
    )


def masked_transform(run: Execution, rows: int) -> tuple[Operator, ...]:
    """Return BERT's dense layer, gelu and normalisation in front of the logits."""
    hidden, width = run.model.hidden, run.width
    linear = Linear(
        run=run, name="transform", rows=rows, inputs=hidden, outputs=(hidden,), bias=run.shape.bias
    )
    size = float(rows * hidden * width)
    return (
        replace(linear.operator, transient=0.0),
        Operator(
            name="transform gelu",
            forward=(MemoryBound(name="transform gelu", bytes=2 * size),),
            input_gradient=(MemoryBound(name="transform gelu grad", bytes=3 * size),),
            inputs=size,
            saved=size,
        ),
        normalise(run, "transform norm", rows, residual=False),
    )


def pooler(run: Execution) -> Operator:
    """Return BERT's dense layer of the first token and its next-sentence classifier."""
    hidden = run.model.hidden
    linear = Linear(
        run=run, name="pooler", rows=run.microbatch, inputs=hidden, outputs=(hidden,), bias=True
    )
    small = MemoryBound(
        name="next sentence", bytes=8.0 * run.microbatch * hidden * run.width, launches=8
    )
    return Operator(
        name="pooler",
        forward=(*linear.forward, small),
        input_gradient=(small, *linear.input_gradient),
        weight_gradient=linear.weight_gradient,
        parameters=float(linear.weights + hidden + 2 * hidden + 2),
    )
