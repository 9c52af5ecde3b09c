"""Kernels that bring operands of products into a recipe's format: fp8 and narrower."""

from sim.model.execution import Execution
from sim.model.kernels import Kernel, MemoryBound

# What kernels that cast, scale and transpose reach of element-wise kernels' bandwidth. H800
# (kernels/deepseek_v3_train_profile.csv, of 3352 GB/s, where element-wise ones reach 0.87): 0.71 by
# transposing casts of 16 to 250 million elements, 0.68 by those of tokens, 0.69 by swiglu and cast.
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
    """An operand in the format of a recipe, in so many copies; `amax` where its maximum is not
    known from an earlier cast, and its `parts` one after the other. One that is `low` has come as
    the first of them, from which the others are made."""
    recipe = run.recipe
    copies -= low
    if recipe is None or copies <= 0:
        return ()
    moved = recipe.cast(elements, copies, width=recipe.element if low else run.width, amax=amax)
    launches = parts * recipe.launches(copies, amax=amax)
    return (MemoryBound(name=f"{name} cast", bytes=float(moved), launches=launches, rate=CASTING),)


def ordered(run: Execution, name: str, elements: float, copies: int) -> tuple[Kernel, ...]:
    """The scales of so many copies of an operand put into the order of products."""
    recipe = run.recipe
    if recipe is None or not recipe.swizzle:
        return ()
    moved = 2.0 * elements * copies * recipe.scale / recipe.block
    launches = copies * recipe.swizzle
    return (MemoryBound(name=f"{name} scales", bytes=moved, launches=launches),)


def cached(run: Execution, name: str, elements: float) -> tuple[Kernel, ...]:
    """A copy in the recipe's format of an activation function's input, if it keeps that input."""
    if run.recipe is None or not run.recipe.caches:
        return ()
    return (MemoryBound(name=f"{name} cache", bytes=elements * (run.width + run.cached_width)),)


def transposed(run: Execution, name: str, elements: float) -> tuple[Kernel, ...]:
    """A cast operand turned for its second use, where the device needs that."""
    recipe = run.recipe
    if recipe is None or not recipe.transposes:
        return ()
    moved = 2.0 * elements * recipe.element
    return (MemoryBound(name=f"{name} transpose", bytes=moved, rate=CASTING),)
