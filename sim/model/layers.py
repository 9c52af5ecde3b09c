"""What one transformer layer does on one rank, forward, backward and recomputing."""

from sim.model import attention, feed_forward
from sim.model.execution import Execution, Recompute, Sharding
from sim.model.kernels import Fusion, LayerWork, Precision
from sim.model.operators import Operator, backward, dropout_add, forward, normalise
from sim.model.transformer import Transformer


def layer_work(
    model: Transformer,
    *,
    microbatch: int,
    sharding: Sharding,
    precision: Precision,
    recompute: Recompute = "none",
    fusion: Fusion,
    later: float = 1.0,
    bucketed: float = 0.0,
) -> LayerWork:
    """One layer's kernels, tensor-parallel collectives and activation bytes.

    With standard attention, in half precision, of b sequences of s tokens over t ranks it keeps
    s b h (10 + 24 / t + 5 a s / (h t)) bytes, divided by t throughout under sequence parallelism
    (Korthikanti et al. 2022, equations 2 and 4). `recompute="selective"` keeps Q, K and V and
    runs the attention core again; "full" keeps the layer's input and runs all of it again.

    Raises `InputError` where tp or cp do not divide the model.
    """
    run = Execution(
        model=model,
        microbatch=microbatch,
        sharding=sharding,
        precision=precision,
        fusion=fusion,
        later=later,
        bucketed=bucketed,
    )
    operators = _post_norm(run) if model.post_norm else _pre_norm(run)
    alive = max(operator.transient for operator in operators)
    saved = sum(operator.saved for operator in operators)
    work = LayerWork(
        forward=forward(operators),
        backward=backward(operators),
        saved=saved,
        transient=alive,
        parameters=sum(operator.parameters for operator in operators),
    )
    return _recomputing(run, work, recompute)


def _pre_norm(run: Execution) -> tuple[Operator, ...]:
    return (
        normalise(run, "attention norm", run.local),
        *_attention(run),
        dropout_add(run, "attention residual", run.local),
        normalise(run, "ffn norm", run.local),
        *_feed_forward(run),
        dropout_add(run, "ffn residual", run.local),
    )


def _post_norm(run: Execution) -> tuple[Operator, ...]:
    return (
        *_attention(run),
        dropout_add(run, "attention residual", run.local),
        normalise(run, "attention norm", run.local),
        *_feed_forward(run),
        dropout_add(run, "ffn residual", run.local),
        normalise(run, "ffn norm", run.local),
    )


def _attention(run: Execution) -> tuple[Operator, ...]:
    return (
        attention.project_in(run),
        attention.arrange(run),
        attention.rotate(run),
        attention.core(run),
        attention.project_out(run),
    )


def _feed_forward(run: Execution) -> tuple[Operator, ...]:
    return (feed_forward.widen(run), feed_forward.activate(run), feed_forward.narrow(run))


def _recomputing(run: Execution, work: LayerWork, recompute: Recompute) -> LayerWork:
    if recompute == "none":
        return work
    core = attention.core(run)
    kept = attention.inputs_saved(run)
    saved = work.saved - core.saved + kept
    again = core.forward
    if recompute == "full":
        saved = float(run.local * run.model.hidden * run.width)
        again = work.forward
    return LayerWork(
        forward=work.forward,
        backward=work.backward,
        recompute=again,
        saved=saved,
        transient=work.transient + work.saved - saved,
        parameters=work.parameters,
    )
