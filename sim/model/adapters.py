"""Fine-tuning by low-rank adapters: frozen operators, some of which have an adapter beside them."""

from collections.abc import Iterator
from dataclasses import replace

from sim.model.execution import DENSE, Execution
from sim.model.kernels import MemoryBound
from sim.model.linear import Linear
from sim.model.operators import MASK, Items, Operator, tensor_collective


def fine_tuned(operators: list[Operator], run: Execution) -> list[Operator]:
    """Return the operators of a block, frozen, each followed by its adapter if it has one."""
    return [
        part for operator in operators for part in (_frozen(operator), *_adapter(operator, run))
    ]


def _frozen(operator: Operator) -> Operator:
    """An operator with frozen weights: nothing is computed, kept or sent for their gradients. The
    simulated backward pass also runs through operators below the first adapter (at most those of
    one layer), which a real run skips."""
    return replace(
        operator,
        weight_gradient=(),
        before_weights=None,
        saved_for_weights=0.0,
        made=min(operator.made, operator.saved),
        handed=0.0,
        group=replace(operator.group, trained=False),
    )


def _adapter(operator: Operator, run: Execution) -> Iterator[Operator]:
    """Yield the adapter of a linear layer, if the layer has one. An adapter is two narrow products,
    A and B, in the precision of activations. Their result is multiplied by alpha / rank and added
    to the layer's output; these kernels read or write the output five times (NeMo,
    nemo/collections/llm/peft/lora.py, LoRALinear.forward). The backward pass scales the output's
    gradient, and adds the adapter's gradient of the input to the layer's. Tensor-parallel ranks
    hold shares of A and of B and sum up the result of A. The adapter keeps its input for A; the
    frozen layer keeps no input. With dropout the adapter keeps mask and result of dropout instead.
    The dropout kernel reads a tensor and writes another; it writes the mask forward, and reads it
    backward."""
    lora = run.lora
    if lora is None or not lora.adapts(operator.name) or not operator.matrices:
        return
    name, rows, width = f"{operator.name} lora", run.rows, run.width
    inputs, outputs = operator.matrices[0].rows, sum(matrix.columns for matrix in operator.matrices)
    plain = replace(run, recipe=None)
    down = Linear(run=plain, name=f"{name} A", rows=rows, inputs=inputs, outputs=(lora.rank,))
    up = Linear(run=plain, name=f"{name} B", rows=rows, inputs=lora.rank, outputs=(outputs,))
    between: Items = ()
    if run.tp > 1:
        between = (tensor_collective(run, "all_reduce", f"{name} sum", rows * lora.rank),)
    output, narrow = float(rows * outputs * width), float(rows * lora.rank * width)
    add = MemoryBound(name=f"{name} sum", bytes=5.0 * output, launches=2)
    scale = MemoryBound(name=f"{name} scale grad", bytes=2.0 * output)
    joined = MemoryBound(name=f"{name} dgrad sum", bytes=3.0 * rows * inputs * width)
    drop, undrop, mask = _dropout(run, name, rows * inputs)
    yield Operator(
        name=name,
        forward=(*drop, *down.forward, *between, *up.forward, add),
        input_gradient=(scale, *up.input_gradient, *between, *down.input_gradient, *undrop, joined),
        weight_gradient=(*up.weight_gradient, *down.weight_gradient),
        saved_for_weights=rows * inputs * width + narrow + mask,
        made=narrow + mask + (rows * inputs * width if lora.dropout else 0.0),
        beside=operator.name,
        handed=output + narrow,
        transient=down.transient + up.transient,
        parameters=float(down.weights + up.weights),
        matrices=(*down.matrices, *up.matrices),
        group=replace(DENSE, name="adapter"),
    )


def _dropout(run: Execution, name: str, elements: int) -> tuple[Items, Items, float]:
    """Return the dropout in front of A, its backward kernel, and the bytes of its mask."""
    if run.lora is None or not run.lora.dropout:
        return (), (), 0.0
    moved = float(elements * (2 * run.width + MASK))
    ahead = MemoryBound(name=f"{name} dropout", bytes=moved, randoms=float(elements))
    back = MemoryBound(name=f"{name} dropout grad", bytes=moved)
    return (ahead,), (back,), float(elements * MASK)
