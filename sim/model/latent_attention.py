"""Multi-head latent attention: Q, K and V come from narrow latents (Megatron-LM,
megatron/core/transformer/multi_latent_attention.py).

Every tensor-parallel rank holds the whole down-projections, and under sequence parallelism applies
them to its own share of the tokens. Up-projections are divided by heads; they gather the latents,
which are narrower than the hidden states. The rotary part of K comes from the down-projection and
is shared by all heads.
"""

from dataclasses import replace

from sim.model.execution import DENSE, Execution
from sim.model.kernels import Item, MemoryBound
from sim.model.linear import Linear
from sim.model.operators import Operator, belonging, normalise, tensor_collective
from sim.model.tensor_parallel import column_linear
from sim.model.transformer import Latent

UP = "mla_up_proj"  # Megatron-LM's name of the up-projections and the rotation after them


def project_in(run: Execution) -> tuple[Operator, ...]:
    """Return the operators from the hidden state to the Q, K and V of the core."""
    latent, model = run.shape.latent, run.shape
    if latent is None:
        raise ValueError("not a model of latent attention")
    nope = model.head - latent.rotary
    keys_and_values = run.heads * (nope + model.value_head)
    whole = column_linear(run, "queries", (run.query_width,))
    queries: tuple[Operator, ...] = (replace(whole, beside="latents"),)
    if latent.query:
        queries = (
            normalise(run, "q latent norm", run.local, width=latent.query, residual=False),
            *belonging(UP, [column_linear(run, "q up", (run.query_width,), inputs=latent.query)]),
        )
    norm = normalise(run, "kv latent norm", run.local, width=latent.kv, residual=False)
    up = column_linear(run, "kv up", (keys_and_values,), inputs=latent.kv)
    rotation = replace(rotate(run, latent), reads=(queries[-1].name, up.name))
    return (
        down(run, latent),
        *queries,
        replace(norm, reads=("latents",)),
        *belonging(UP, (up, rotation)),
    )


def down(run: Execution, latent: Latent) -> Operator:
    """Return the projection of the hidden state to latents. It keeps its input, unless queries have
    no latent: then the queries' own projection keeps the input."""
    outputs: tuple[int, ...] = (latent.kv + latent.rotary,)
    if latent.query:
        outputs = (latent.query, *outputs)
    linear = Linear(
        run=run, name="latents", rows=run.local, inputs=run.model.hidden, outputs=outputs
    )
    elements = run.local * run.model.hidden
    return replace(
        linear.operator,
        saved_for_weights=elements * run.kept_width if latent.query else 0.0,
        handed=float(run.local * sum(outputs) * run.handed_width),
        group=run.low(DENSE),
    )


def rotate(run: Execution, latent: Latent) -> Operator:
    """Return the rotation of the rotary parts of Q and K, and the assembly of K and V by heads.
    Fused, one kernel rotates Q in place, and another reads the up-projection's keys and values and
    writes K and V (Megatron-LM, megatron/core/fusions/fused_mla_yarn_rope_apply.py). Otherwise
    rotated elements are read or written ten times (`attention.rotate`), and Q, K and V copied."""
    model, rows, rotary = run.shape, run.rows, latent.rotary
    up = rows * run.heads * (model.head - rotary + model.value_head)
    made = rows * (run.kv_width + run.value_width)
    rotated = rows * run.heads * rotary
    if run.fused("rotary"):
        passes, launches = 2 * rotated + up + rows * rotary + made, 2
    else:
        shared = rows * rotary
        passes, launches = 11 * (rotated + shared) + 2 * rows * run.query_width + up + made, 13
    kernel = MemoryBound(name="latent rotary", bytes=float(passes * run.width), launches=launches)
    before, after = _shared_keys(run, rotary)
    return Operator(
        name="latent rotary",
        forward=(*before, kernel),
        input_gradient=(kernel, *after),
        inputs=float((rows * (run.query_width + rotary) + up) * run.width),
        transient=float((up + made) * run.width),
    )


def _shared_keys(run: Execution, rotary: int) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    """Return the tensor-parallel collectives, forward and backward, on the rotary part of K, which
    all tensor-parallel ranks need."""
    if run.tp == 1:
        return (), ()
    elements = run.rows * rotary
    if not run.sharding.sequence_parallel:
        return (), (tensor_collective(run, "all_reduce", "rotary keys grad", elements),)
    return (
        (tensor_collective(run, "all_gather", "rotary keys", elements),),
        (tensor_collective(run, "reduce_scatter", "rotary keys grad", elements),),
    )
