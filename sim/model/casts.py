"""Casts of operands into the format of a recipe below 16 bits."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sim.model.execution import Execution
from sim.model.kernels import Kernel, MemoryBound

if TYPE_CHECKING:
    from sim.model.precision import Recipe

# Share of element-wise kernels' bandwidth that casting, scaling and transposing kernels reach.
# H800 (kernels/deepseek_v3_train_profile.csv), relative to 3352 GB/s: element-wise kernels 0.87,
# transposing casts of 16 to 250 million elements 0.71, casts of tokens 0.68, swiglu and cast 0.69.
CASTING = 0.82


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
    """Return the cast of an operand into `copies` copies in the recipe's format. `amax` says that
    the operand's maximum is not known yet. The `parts` of the operand are cast one after the other.
    A `low` operand arrives as the first copy, from which the others are made."""
    recipe = run.recipe
    copies -= low
    if recipe is None or copies <= 0:
        return ()
    moved = recipe.cast(elements, copies, width=recipe.element if low else run.width, amax=amax)
    launches = parts * recipe.launches(copies, amax=amax)
    return (MemoryBound(name=f"{name} cast", bytes=float(moved), launches=launches, rate=CASTING),)


def ordered(run: Execution, name: str, elements: float, copies: int) -> tuple[Kernel, ...]:
    """Return the kernels that put the scales of an operand's copies in the products' order."""
    recipe = run.recipe
    if recipe is None or not recipe.swizzle:
        return ()
    moved = 2.0 * elements * copies * recipe.scale / recipe.block
    launches = copies * recipe.swizzle
    return (MemoryBound(name=f"{name} scales", bytes=moved, launches=launches),)


def transposed(run: Execution, name: str, elements: float) -> tuple[Kernel, ...]:
    """Return the transposition of a cast operand for its second use, if the device needs it."""
    recipe = run.recipe
    if recipe is None or not recipe.transposes:
        return ()
    moved = 2.0 * elements * recipe.element
    return (MemoryBound(name=f"{name} transpose", bytes=moved, rate=CASTING),)


def weight_casts(
    recipe: "Recipe", *, parameters: float, updated: float, tensors: int
) -> Iterator[MemoryBound]:
    """Yield the kernels that cast weights of linear layers into a recipe's format, once a step.
    Weights that are gathered in this format are cast as the optimizer writes them. Before that, the
    maxima of the rank's share of fp32 masters are found (Megatron-LM, distrib_optimizer.py,
    quantize_param_shard). After the gather these weights are transposed. All other weights are cast
    whole, from bf16."""
    if recipe.weights == "pass":
        return
    copies, name = recipe.copies("weight"), "cast weights"
    if not recipe.gathers_weights:
        moved = recipe.cast(parameters, copies, width=2)
        yield MemoryBound(name=name, bytes=moved, launches=recipe.launches(copies) * tensors)
        return
    if recipe.amax:
        yield MemoryBound(name="maxima of weights", bytes=updated * 4, launches=2 * tensors)
    if copies > 1 and not recipe.sharded and not recipe.turns_weights:
        moved = parameters * 2 * recipe.element
        yield MemoryBound(name="transpose weights", bytes=moved, launches=tensors)
