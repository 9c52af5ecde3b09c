"""Linear layers on one rank: three products, casts of their operands, sums of their results."""

from dataclasses import replace

from sim.config.dataclass import dataclass
from sim.model.execution import Execution
from sim.model.kernels import Gemm, Kernel, MemoryBound
from sim.model.operators import Matrix, Operator


def accumulate(run: Execution, name: str, weights: float) -> tuple[Kernel, ...]:
    """Return the kernels that add a new gradient to the sum of earlier micro-steps.

    Bytes per weight: torch's AccumulateGrad and a buffer of the weights' precision move three times
    the width of a gradient. An fp32 buffer (Megatron-LM accumulate_allreduce_grads_in_fp32,
    nanotron) moves the width and 8 bytes. "clipped" gradients (NVIDIA DeepLearningExamples,
    TensorFlow/LanguageModeling/BERT/optimization.py) are read for their norm (4), scaled by it (8)
    and added in fp32 (12) in every micro-step. Under fp16 they are first cast (6), unscaled (8) and
    checked for overflow (6: four read, a truth value written and read), and weights are cast (6).
    "fresh" gradients are added from the second micro-step on, and copied into DDP's buckets in the
    last (torch/csrc/distributed/c10d/reducer.cpp); the mean over micro-steps is counted.
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
    tied = run.model.tied_embeddings and run.words != "alone"
    return tied and run.fusion.gradients in ("grad", "fresh")


def products(
    run: Execution, name: str, rows: int, inputs: int, outputs: int, groups: int = 1
) -> tuple[Gemm, Gemm, Gemm]:
    """Return the products y = x W, dx = dy W' and dW = x' dy, where ' transposes, x is (rows,
    inputs) and W is (inputs, outputs). Each of several `groups` has a matrix for an equal share of
    rows."""
    each, kernels = -(-rows // groups), 1 if run.fusion.grouped else groups
    y = Gemm(
        name=name,
        m=each,
        n=outputs,
        k=inputs,
        batch=groups,
        precision=run.of("forward"),
        kernels=kernels,
        rate=run.rate("forward"),
    )
    return (
        y,
        replace(
            y,
            name=f"{name} dgrad",
            n=inputs,
            k=outputs,
            precision=run.of("dgrad"),
            rate=run.rate("dgrad"),
        ),
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
            rate=run.rate("wgrad"),
        ),
    )


def bias_add(run: Execution, name: str, elements: float) -> tuple[Kernel, ...]:
    if run.fusion.bias_in_gemm or run.fusion.compiled:
        return ()
    return (MemoryBound(name=f"{name} bias", bytes=float(2 * elements * run.width)),)


def bias_gradient(run: Execution, name: str, elements: float) -> tuple[Kernel, ...]:
    """Return the sum of a bias's gradient over the rows, and its accumulation."""
    return (MemoryBound(name=f"{name} bias grad", bytes=float(elements * run.width), launches=2),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """One linear layer on one rank, from `rows` x `inputs` to the widths in `outputs`.

    Each width is a GEMM; the GEMMs share the input. With several `groups`, that many layers side by
    side share the rows. With `bias_later` the kernel after the layer adds the bias. Four keys name
    operands that need less work to be cast. `low` operands arrive in the recipe's format. `ready`
    operands arrive in all copies that they need. `written` operands do, too, but their scales are
    not in the order that the products need. The maximum of `found` operands is known.
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
        """The kernels of y, without casts of operands."""
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
        """The kernels of dx without casts, and its sum over the GEMMs that share x."""
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
        self, operand: str, elements: float, copies: int, *, amax: bool = True
    ) -> tuple[Kernel, ...]:
        if operand in self.ready:
            return ()
        from sim.model.casts import cast, ordered

        parts, name = 1 if self.run.fusion.grouped else self.groups, f"{self.name} {operand}"
        if operand in self.written:
            return ordered(self.run, name, elements, copies)
        low, amax = operand in self.low, amax and operand not in self.found
        return cast(self.run, name, elements, copies, amax=amax, parts=parts, low=low)

    def cast_input(self, rows: int) -> tuple[Kernel, ...]:
        """Return the casts of `rows` rows of x, and of W unless W is cast once a step."""
        recipe = self.run.recipe
        if recipe is None:
            return ()
        copies = recipe.copies("input") if recipe.keeps_operand else recipe.copies("input") > 0
        casts_weights = int("forward" in recipe.products and recipe.weights == "pass")
        return (
            *self._cast("input", rows * self.inputs, int(copies)),
            *self._cast("weight", self.weights, casts_weights),
        )

    def cast_gradient(self, rows: int) -> tuple[Kernel, ...]:
        """Return the casts of `rows` rows of dy, and of W for its second use if its first cast is
        not kept."""
        run, recipe = self.run, self.run.recipe
        if recipe is None:
            return ()
        from sim.model.casts import transposed

        copies = recipe.copies("gradient")
        again = int("dgrad" in recipe.products and recipe.weights == "pass")
        known = "forward" not in recipe.products
        return (
            *self._cast("grad", rows * sum(self.outputs), copies),
            *self._cast("weight", self.weights, again, amax=known),
            *(transposed(run, f"{self.name} weight", self.weights) if recipe.turns_weights else ()),
        )

    @property
    def operator(self) -> Operator:
        """The layer as an operator, if every rank holds all of it: x is kept, nothing is sent."""
        width, outputs = self.run.width, self.groups * sum(self.outputs)
        kept = float(self.rows * self.inputs * width)
        return Operator(
            name=self.name,
            forward=self.forward,
            input_gradient=self.input_gradient,
            weight_gradient=self.weight_gradient,
            inputs=kept,
            saved_for_weights=kept,
            handed=float(self.rows * sum(self.outputs) * width),
            transient=self.transient,
            parameters=float(self.weights + outputs * self.bias),
            matrices=self.matrices,
        )

    @property
    def transient(self) -> float:
        """Bytes alive only in the backward pass: dy, dx, and dW until it is accumulated."""
        fresh = 0 if self.run.fusion.adds_in_gemm else self.groups * self.inputs * max(self.outputs)
        return float((self.rows * (self.inputs + sum(self.outputs)) + fresh) * self.run.width)


def cached(run: Execution, name: str, elements: float) -> tuple[Kernel, ...]:
    """Return the copy of an activation function's input in the recipe's format, if the recipe keeps
    it (`Recipe.caches`)."""
    if run.recipe is None or not run.recipe.caches:
        return ()
    return (MemoryBound(name=f"{name} cache", bytes=elements * (run.width + run.cached_width)),)
