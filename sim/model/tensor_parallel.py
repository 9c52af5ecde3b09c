"""Column- and row-parallel linear layers with their collectives: Megatron's, and DTensor's, in
which redistributing a tensor is a separate operator."""

from dataclasses import replace
from functools import partial

from sim.model.execution import DENSE, Execution
from sim.model.kernels import Item, Kernel, Overlap
from sim.model.linear import Linear
from sim.model.operators import Operator, tensor_collective
from sim.program.operations import Collective

_CASTS = {"product": "cast_input", "input_product": "cast_gradient"}


def column_linear(
    run: Execution,
    name: str,
    outputs: tuple[int, ...],
    *,
    inputs: int = 0,
    bias: bool = False,
    bias_later: bool = False,
    normed: bool = False,
) -> Operator:
    """Return Megatron's column-parallel linear layer, from whole `inputs` (0: hidden) to this
    rank's `outputs`. `normed` says that a norm comes right before the layer. Without sequence
    parallelism the backward pass all-reduces dx (operator f, Shoeybi et al. 2019, section 3). With
    it the forward pass all-gathers x and keeps only the rank's share; the backward pass gathers x
    again and reduce-scatters dx (Korthikanti et al. 2022, section 4.2.2)."""
    inputs = inputs or run.model.hidden
    linear = Linear(
        run=run,
        name=name,
        rows=run.rows,
        inputs=inputs,
        outputs=outputs,
        bias=bias,
        bias_later=bias_later,
    )
    linear = _behind_norm(linear) if normed else linear
    whole = run.rows * inputs
    gathered = whole * run.width if run.local < run.rows else 0
    quiet = run.user_buffers
    before, after = input_collectives(run, name, whole, width=run.kept_width, quiet=quiet)
    return Operator(
        name=name,
        forward=_behind_gather(linear, name, "product"),
        input_gradient=linear.input_gradient,
        weight_gradient=(*_gathered_turned(run, name, whole), *linear.weight_gradient),
        before_weights=before,
        after_input=after,
        overlaps=run.fusion.overlap_tensor,
        inputs=float(run.local * inputs * run.width),
        saved_for_weights=float(run.local * inputs * run.kept_width),
        made=0.0 if run.keeps(name) else float(run.local * inputs * run.kept_width),
        casts=True,
        handed=float(run.rows * sum(outputs) * run.handed_width),
        transient=linear.transient + gathered,
        parameters=float(linear.weights + (sum(outputs) if bias else 0)),
        matrices=linear.matrices,
        group=run.low(DENSE),
    )


def _behind_norm(linear: Linear) -> Linear:
    """Return the linear layer without the casts of its input that the norm in front has done."""
    run, done = linear.run, linear.run.normed(linear.name)
    if done == "cast" and run.recipe and run.recipe.block:
        return replace(linear, written=("input",))
    if done == "cast":
        return replace(linear, low=("input",))
    return replace(linear, found=("input",)) if done else linear


def input_collectives(
    run: Execution, name: str, elements: float, *, width: float | None = None, quiet: bool = False
) -> tuple[Collective | None, Collective | None]:
    """Return the collectives of the backward pass on the whole input of a linear layer. Under
    sequence parallelism, only a share of the input was kept. The first collective gathers the input
    again for the weights' gradients, in elements of `width` bytes; the second scatters the input's
    gradient. Without it the first is None, and the second sums the input's gradient."""
    if run.tp == 1:
        return None, None
    if not run.sharding.sequence_parallel:
        return None, tensor_collective(run, "all_reduce", f"{name} grad all-reduce", elements)
    call = partial(tensor_collective, run, quiet=quiet)
    return (
        call("all_gather", f"{name} input all-gather", elements, width=width),
        call("reduce_scatter", f"{name} grad scatter", elements),
    )


def _behind_gather(linear: Linear, name: str, product: str) -> tuple[Item, ...]:
    """Return a product after the all-gather that sequence parallelism puts in front of it. If a
    recipe gathers inputs in its format, they are cast before the gather (TransformerEngine,
    module/linear.py), otherwise after it. If the stack splits the product (`split_gather`), the
    rank's own rows are multiplied beside the gather and the other rows after it. With user buffers
    all pieces but the last are multiplied beside the gather."""
    run, casts = linear.run, getattr(linear, _CASTS[product])
    if not run.sharding.sequence_parallel:
        return (*casts(linear.rows), *getattr(linear, product))
    low = run.recipe if run.recipe and run.recipe.gathers_inputs else None
    columns = linear.inputs if product == "product" else sum(linear.outputs)
    elements, width = run.rows * columns, float(run.width)
    if low:
        both = product == "input_product" and low.block  # copies for dgrad and wgrad
        width = low.element * (2 if both else 1)
    gather = tensor_collective(
        run, "all_gather", f"{name} all-gather", elements, width=width, quiet=run.user_buffers
    )
    before, behind = (casts(run.local), ()) if low else ((), casts(run.rows))
    if not (run.fusion.split_gather or run.user_buffers):
        return (*before, gather, *behind, *getattr(linear, product))
    local = replace(linear, rows=run.local)
    others = replace(linear, rows=run.rows - run.local)
    if run.user_buffers:  # The last piece runs after the gather, all others as they arrive.
        local, others = others, local
    beside_it = Overlap(collective=gather, kernels=getattr(local, product))
    return (*before, beside_it, *behind, *getattr(others, product))


def row_linear(run: Execution, name: str, inputs: int, *, bias: bool = False) -> Operator:
    """Return Megatron's row-parallel linear layer: the input is divided, the `hidden` columns of
    the output are summed over ranks. The forward pass all-reduces y (operator g). Under sequence
    parallelism the forward pass reduce-scatters y, and the backward pass gathers dy. The dropout
    and residual sum that follow add the bias."""
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
    dgrad = _behind_gather(linear, f"{name} grad", "input_product")
    return Operator(
        name=name,
        forward=_scattered(linear, name, run.rows * hidden),
        input_gradient=dgrad,
        weight_gradient=(
            *_gathered_turned(run, f"{name} grad", run.rows * hidden),
            *linear.weight_gradient,
        ),
        inputs=float(run.rows * inputs * run.width),
        saved_for_weights=float(run.rows * inputs * run.kept_width),
        made=0.0 if run.keeps(name) else float(run.rows * inputs * run.kept_width),
        casts=True,
        handed=float(run.rows * hidden * run.handed_width),
        transient=linear.transient,
        parameters=float(linear.weights + (hidden if bias else 0)),
        matrices=linear.matrices,
        group=run.low(DENSE),
    )


def _scattered(linear: Linear, name: str, elements: int) -> tuple[Item, ...]:
    """Return a product and the sum of its result over ranks. With user buffers all pieces but the
    first are multiplied beside the sum."""
    run = linear.run
    if not run.user_buffers:
        return (*linear.forward, *_leave(run, name, elements))
    first = replace(linear, rows=run.local)
    others = replace(linear, rows=run.rows - run.local)
    scatter = tensor_collective(
        run, "reduce_scatter", f"{name} reduce-scatter", elements, quiet=True
    )
    beside_it = Overlap(collective=scatter, kernels=others.product)
    return (*linear.cast_input(run.rows), *first.product, beside_it)


def _leave(run: Execution, name: str, elements: int) -> tuple[Item, ...]:
    if run.tp == 1:
        return ()
    if run.sharding.sequence_parallel:
        return (tensor_collective(run, "reduce_scatter", f"{name} reduce-scatter", elements),)
    return (tensor_collective(run, "all_reduce", f"{name} all-reduce", elements),)


def _gathered_turned(run: Execution, name: str, elements: float) -> tuple[Kernel, ...]:
    """Return the transposition, for wgrad, of an operand that was gathered in one copy only."""
    gathers = run.recipe is not None and run.recipe.gathers_inputs
    if not (run.sharding.sequence_parallel and gathers):
        return ()
    from sim.model.casts import transposed

    return transposed(run, name, elements)
