"""Linear layers on one rank: three products, and the collectives of tensor parallelism."""

from dataclasses import dataclass, replace
from functools import partial

from sim.model.execution import Execution
from sim.model.groups import DENSE
from sim.model.kernels import Gemm, Item, Kernel, MemoryBound, Overlap
from sim.model.operators import Matrix, Operator, tensor_collective
from sim.program.operations import Collective


def accumulate(run: Execution, name: str, weights: float) -> tuple[Kernel, ...]:
    """Add a fresh gradient to what earlier micro-steps left: read both, write one.

    torch's AccumulateGrad and a buffer of the weights' precision move three times the width; an
    fp32 buffer (Megatron-LM accumulate_allreduce_grads_in_fp32, nanotron) the width and 8 bytes.
    Clipped ones (NVIDIA DeepLearningExamples, TensorFlow/LanguageModeling/BERT/optimization.py) are
    read for their norm (4), scaled by it (8) and added in fp32 (12) in every micro-step; under fp16
    weights are cast before (6), gradients cast (6), unscaled (8) and checked for overflow (6: four
    read, a truth value written and read).
    Fresh gradients are added from the second micro-step on, and copied into DDP's buckets in the
    last (torch/csrc/distributed/c10d/reducer.cpp): the mean over all is counted.
    """
    gradients, launches = run.fusion.gradients, 1
    if gradients == "clipped":
        moved, launches = (weights * 50, 8) if run.width == 2 else (weights * 24, 3)
    elif gradients in ("grad", "fresh"):
        moved = (3 * run.later + 2 * run.bucketed) * weights * run.width
    else:
        moved = weights * (run.width + (8 if gradients == "fp32-buffer" else 2 * run.width))
    if run.fusion.adds_in_gemm or moved == 0:
        return ()
    return (MemoryBound(name=f"{name} accumulate", bytes=float(moved), launches=launches),)


def joins_gradients(run: Execution) -> bool:
    """Whether autograd adds up a tied matrix's two gradients before they are accumulated."""
    tied = run.model.tied_embeddings and not run.own_copy
    return tied and run.fusion.gradients in ("grad", "fresh")


def products(
    run: Execution, name: str, rows: int, inputs: int, outputs: int, groups: int = 1
) -> tuple[Gemm, Gemm, Gemm]:
    """y = x W, dx = dy W', dW = x' dy with x (rows, inputs) and W (inputs, outputs).

    With `groups` each of so many matrices multiplies its equal share of the rows.
    """
    each, kernels = -(-rows // groups), 1 if run.fusion.grouped else groups
    y = Gemm(
        name=name,
        m=each,
        n=outputs,
        k=inputs,
        batch=groups,
        precision=run.of("forward"),
        kernels=kernels,
    )
    return (
        y,
        replace(y, name=f"{name} dgrad", n=inputs, k=outputs, precision=run.of("dgrad")),
        Gemm(
            name=f"{name} wgrad",
            m=inputs,
            n=outputs,
            k=each,
            batch=groups,
            precision=run.of("wgrad"),
            accumulate=run.fusion.adds_in_gemm,
            accumulator=4 if run.fusion.gradients == "fused" else run.width,
            kernels=kernels,
            rate=run.recipe.wgrad if run.recipe and "wgrad" in run.recipe.products else 1.0,
        ),
    )


def cast(
    run: Execution,
    name: str,
    elements: float,
    copies: int,
    *,
    amax: bool = True,
    parts: int = 1,
    low: bool = False,
) -> tuple[Kernel, ...]:
    """An operand in the format of a recipe, in so many copies; `amax` where its maximum is not
    known from an earlier cast, and its `parts` one after the other. One that is `low` has come as
    the first of them, from which the others are made."""
    recipe = run.recipe
    copies -= low
    if recipe is None or copies <= 0:
        return ()
    moved = recipe.cast(elements, copies, width=recipe.element if low else run.width, amax=amax)
    launches = parts * recipe.launches(copies, amax=amax)
    return (MemoryBound(name=f"{name} cast", bytes=float(moved), launches=launches),)


def ordered(run: Execution, name: str, elements: float, copies: int) -> tuple[Kernel, ...]:
    """The scales of so many copies of an operand put into the order of products."""
    recipe = run.recipe
    if recipe is None or not recipe.swizzle:
        return ()
    moved = 2.0 * elements * copies * recipe.scale / recipe.block
    launches = copies * recipe.swizzle
    return (MemoryBound(name=f"{name} scales", bytes=moved, launches=launches),)


def cached(run: Execution, name: str, elements: float) -> tuple[Kernel, ...]:
    """A copy in the recipe's format of what an activation function reads, where it keeps that."""
    if run.recipe is None or not run.recipe.caches:
        return ()
    return (MemoryBound(name=f"{name} cache", bytes=elements * (run.width + run.cached_width)),)


def transposed(run: Execution, name: str, elements: float) -> tuple[Kernel, ...]:
    """A cast operand turned for its second use, where the device needs that."""
    recipe = run.recipe
    if recipe is None or not recipe.transposes:
        return ()
    return (MemoryBound(name=f"{name} transpose", bytes=2.0 * elements * recipe.element),)


def gathered_turned(run: Execution, name: str, elements: float) -> tuple[Kernel, ...]:
    """An operand that sequence parallelism gathered in one copy, turned for wgrad."""
    gathers = run.recipe is not None and run.recipe.gathers_inputs
    split = run.sharding.sequence_parallel and gathers
    return transposed(run, name, elements) if split else ()


def bias_add(run: Execution, name: str, elements: float) -> tuple[Kernel, ...]:
    if run.fusion.bias_in_gemm or run.fusion.compiled:
        return ()
    return (MemoryBound(name=f"{name} bias", bytes=float(2 * elements * run.width)),)


def bias_gradient(run: Execution, name: str, elements: float) -> tuple[Kernel, ...]:
    """A sum over the rows, and its accumulation."""
    return (MemoryBound(name=f"{name} bias grad", bytes=float(elements * run.width), launches=2),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """One linear layer on one rank: `rows` x `inputs` -> the widths of `outputs`, in one or several
    GEMMs that share the input; with `groups`, so many layers side by side that share the rows.
    `bias_later` leaves adding it to the kernel behind. Operands that are `low` have come cast,
    those that are `ready` in all copies, the `written` ones with scales as they were made; of those
    that are `found` the maximum is known.
    """

    run: Execution
    name: str
    rows: int
    inputs: int
    outputs: tuple[int, ...]
    groups: int = 1
    bias: bool = False
    bias_later: bool = False
    low: tuple[str, ...] = ()
    ready: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    found: tuple[str, ...] = ()

    @property
    def weights(self) -> int:
        return self.groups * self.inputs * sum(self.outputs)

    @property
    def matrices(self) -> tuple[Matrix, ...]:
        return tuple(Matrix(self.inputs, n, self.groups) for n in self.outputs)

    def _products(self, outputs: int) -> tuple[Gemm, Gemm, Gemm]:
        return products(self.run, self.name, self.rows, self.inputs, outputs, self.groups)

    @property
    def forward(self) -> tuple[Kernel, ...]:
        return (*self.cast_input(self.rows), *self.product)

    @property
    def product(self) -> tuple[Kernel, ...]:
        """y, once operands are cast."""
        run = self.run
        gemms = [self._products(n)[0] for n in self.outputs]
        added = self.bias and not self.bias_later
        bias = bias_add(run, self.name, self.rows * sum(self.outputs)) if added else ()
        return (*gemms, *bias)

    @property
    def input_gradient(self) -> tuple[Kernel, ...]:
        return (*self.cast_gradient(self.rows), *self.input_product)

    @property
    def input_product(self) -> tuple[Kernel, ...]:
        """dx, summed over the GEMMs that share x."""
        run = self.run
        gemms = [self._products(n)[1] for n in self.outputs]
        sums = [
            MemoryBound(
                name=f"{self.name} dgrad sum", bytes=float(3 * self.rows * self.inputs * run.width)
            )
        ] * (len(gemms) - 1)
        return (*gemms, *sums)

    @property
    def weight_gradient(self) -> tuple[Kernel, ...]:
        run, recipe = self.run, self.run.recipe
        kernels: list[Kernel] = []
        if recipe is not None and not recipe.keeps_operand:
            again = int("wgrad" in recipe.products)
            kernels += self._cast("input", self.rows * self.inputs, again, amax=False)
        for n in self.outputs:
            kernels += [
                self._products(n)[2],
                *accumulate(run, self.name, self.groups * self.inputs * n),
            ]
        if self.bias:
            kernels += bias_gradient(run, self.name, self.rows * sum(self.outputs))
        return tuple(kernels)

    def _cast(
        self, what: str, elements: float, copies: int, *, amax: bool = True
    ) -> tuple[Kernel, ...]:
        if what in self.ready:
            return ()
        parts, name = 1 if self.run.fusion.grouped else self.groups, f"{self.name} {what}"
        if what in self.written:
            return ordered(self.run, name, elements, copies)
        low, amax = what in self.low, amax and what not in self.found
        return cast(self.run, name, elements, copies, amax=amax, parts=parts, low=low)

    def cast_input(self, rows: int) -> tuple[Kernel, ...]:
        """So many rows of x, and W unless it is cast once a step."""
        recipe = self.run.recipe
        if recipe is None:
            return ()
        copies = recipe.copies("input") if recipe.keeps_operand else recipe.copies("input") > 0
        own = int("forward" in recipe.products and recipe.weights == "pass")
        return (
            *self._cast("input", rows * self.inputs, int(copies)),
            *self._cast("weight", self.weights, own),
        )

    def cast_gradient(self, rows: int) -> tuple[Kernel, ...]:
        """So many rows of dy, and W for its second use where it did not stay."""
        run, recipe = self.run, self.run.recipe
        if recipe is None:
            return ()
        copies = recipe.copies("gradient")
        again = int("dgrad" in recipe.products and recipe.weights == "pass")
        known = "forward" not in recipe.products
        return (
            *self._cast("grad", rows * sum(self.outputs), copies),
            *self._cast("weight", self.weights, again, amax=known),
            *(transposed(run, f"{self.name} weight", self.weights) if recipe.turns_weights else ()),
        )

    @property
    def transient(self) -> float:
        """Backward: dy and dx at once, and dW until it is accumulated."""
        fresh = 0 if self.run.fusion.adds_in_gemm else self.groups * self.inputs * max(self.outputs)
        return float((self.rows * (self.inputs + sum(self.outputs)) + fresh) * self.run.width)


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
    """Megatron's column-parallel linear: whole `inputs` (0: hidden), outputs divided (this rank's),
    right behind a norm where `normed`.

    Without sequence parallelism backward all-reduces dx (operator f, Shoeybi et al. 2019,
    section 3); with it forward all-gathers x, backward gathers x again, of which only a share is
    kept, and reduce-scatters dx (Korthikanti et al. 2022, section 4.2.2).
    """
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
        weight_gradient=(*gathered_turned(run, name, whole), *linear.weight_gradient),
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
    """A linear layer whose input comes as the norm in front of it makes it."""
    run, done = linear.run, linear.run.normed(linear.name)
    if done == "cast" and run.recipe and run.recipe.block:
        return replace(linear, written=("input",))
    if done == "cast":
        return replace(linear, low=("input",))
    return replace(linear, found=("input",)) if done else linear


def input_collectives(
    run: Execution,
    name: str,
    elements: float,
    *,
    width: float | None = None,
    quiet: bool = False,
) -> tuple[Collective | None, Collective | None]:
    """What tensor parallelism does with a linear's whole input backward.

    It is gathered again before the weights' gradients, in elements of `width` bytes, where only a
    share of it was kept; its gradient is summed or, under sequence parallelism, scattered.
    """
    if run.tp == 1:
        return None, None
    if not run.sharding.sequence_parallel:
        return None, tensor_collective(run, "all_reduce", f"{name} grad all-reduce", elements)
    call = partial(tensor_collective, run, quiet=quiet)
    return (
        call("all_gather", f"{name} input all-gather", elements, width=width),
        call("reduce_scatter", f"{name} grad scatter", elements),
    )


_CASTS = {"product": "cast_input", "input_product": "cast_gradient"}


def _behind_gather(linear: Linear, name: str, product: str) -> tuple[Item, ...]:
    """A product behind the all-gather that sequence parallelism puts in front of it.

    What a recipe gathers is cast before (TransformerEngine, module/linear.py), else behind. Where
    the stack splits the gather, the product of the rank's own rows runs beside it and that of the
    others' behind it; with user buffers, those of all pieces but the last run beside it.
    """
    run, casts = linear.run, getattr(linear, _CASTS[product])
    if not run.sharding.sequence_parallel:
        return (*casts(linear.rows), *getattr(linear, product))
    low = run.recipe if run.recipe and run.recipe.gathers_inputs else None
    columns = linear.inputs if product == "product" else sum(linear.outputs)
    elements, width = run.rows * columns, float(run.width)
    if low:
        both = product == "input_product" and low.block  # for dgrad and for wgrad
        width = low.element * (2 if both else 1)
    gather = tensor_collective(
        run, "all_gather", f"{name} all-gather", elements, width=width, quiet=run.user_buffers
    )
    before, behind = (casts(run.local), ()) if low else ((), casts(run.rows))
    if not (run.fusion.split_gather or run.user_buffers):
        return (*before, gather, *behind, *getattr(linear, product))
    own = replace(linear, rows=run.local)
    others = replace(linear, rows=run.rows - run.local)
    if run.user_buffers:  # the last piece comes behind the gather, all others as they arrive
        own, others = others, own
    beside_it = Overlap(collective=gather, kernels=getattr(own, product))
    return (*before, beside_it, *behind, *getattr(others, product))


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
    dgrad = _behind_gather(linear, f"{name} grad", "input_product")
    return Operator(
        name=name,
        forward=_scattered(linear, name, run.rows * hidden),
        input_gradient=dgrad,
        weight_gradient=(
            *gathered_turned(run, f"{name} grad", run.rows * hidden),
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
    """A product and the sum behind it; with user buffers of all pieces but the first beside it."""
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
