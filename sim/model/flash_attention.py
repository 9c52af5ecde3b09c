"""The core of attention as one fused kernel, or one for each share of a divided sequence."""

from dataclasses import replace

from sim.model import context_parallel
from sim.model.attention_core import CORE, inputs_saved, join
from sim.model.execution import Execution
from sim.model.kernels import Item, MemoryBound
from sim.model.operators import Operator


def flash_core(run: Execution) -> Operator:
    """Return the fused core, which keeps no scores, only an fp32 log-sum-exp per query and head.
    The output is kept once, as the input of the next projection (Dao et al. 2022), unless that
    projection keeps no input or keeps a cast copy. The gradients of Q, K and V are joined for their
    common projection. Latent attention has no such projection."""
    statistics = 4.0 * run.rows * run.heads
    own_format = _own_format(run)
    keys = run.kv_width + run.value_width
    output = 0 if run.shares_output else run.rows * run.output_width * run.width
    core = Operator(
        name=CORE,
        modules=("core_attn",),
        forward=(*context_parallel.forward(run), *own_format),
        input_gradient=(
            *own_format,
            *context_parallel.backward(run),
            *(() if run.fusion.compiled or run.shape.latent else (join(run, passes=2),)),
        ),
        inputs=inputs_saved(run),
        saved=inputs_saved(run) + statistics + output,
        made=statistics + output,
        # dQ is summed in fp32; dK and dV in the kernel's own precision.
        transient=float(run.rows * (4 * run.query_width + keys * run.width)),
    )
    return _in_low(run, core)


def _own_format(run: Execution) -> tuple[Item, ...]:
    """Return the cast of the output to the recipe's format for it (`Recipe.core`), or back."""
    if not (run.recipe and run.recipe.core):
        return ()
    elements = run.rows * run.output_width
    return (MemoryBound(name="output format", bytes=elements * (run.width + run.recipe.core)),)


def _in_low(run: Execution, core: Operator) -> Operator:
    """Return the core in the recipe's format (TransformerEngine, dot_product_attention/backends.py,
    FusedAttnFunc). Q, K, V and the output's gradient are cast in front of its kernels; the output
    and the gradients are cast back after them. The backward pass reads the cast Q, K, V and
    output."""
    recipe = run.recipe
    if recipe is None or not recipe.attention:
        return core
    output, found = run.rows * run.output_width, recipe.amax > 0
    once, back = run.width * (1 + found) + run.core_width, run.width + run.core_width
    launches = 1 + recipe.amax
    kept = (run.mixed + output) * run.core_width + core.made
    return replace(
        core,
        forward=(
            MemoryBound(name="attention input cast", bytes=run.mixed * once, launches=launches),
            *core.forward,
            MemoryBound(name="attention output", bytes=output * back),
        ),
        input_gradient=(
            MemoryBound(name="attention grad cast", bytes=output * once, launches=launches),
            *core.input_gradient,
            MemoryBound(name="attention input grad", bytes=run.mixed * back),
        ),
        saved=kept,
        made=kept,
        casts=True,
    )
