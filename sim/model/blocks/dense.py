"""The dense transformer layer: attention and a feed-forward block, norms and residual sums.

With standard attention in half precision, the layer keeps s b h (10 + 24 / t + 5 a s / (h t)) bytes
on each of t tensor-parallel ranks, for b sequences of s tokens, hidden width h and `a` heads. Under
sequence parallelism all terms are divided by t (Korthikanti et al. 2022, equations 2 and 4).
"""

from dataclasses import replace

from sim.model import attention, feed_forward
from sim.model.execution import Execution
from sim.model.kernels import MemoryBound
from sim.model.operators import Operator, belonging, dropout_add, normalise, scoped


def operators(run: Execution) -> tuple[Operator, ...]:
    """Return the block's operators on one rank, in forward order."""
    return _post_norm(run) if run.shape.post_norm else _pre_norm(run)


def _pre_norm(run: Execution) -> tuple[Operator, ...]:
    return (*attention_part(run), *feed_forward_part(run))


def attention_part(run: Execution) -> tuple[Operator, ...]:
    """Return the norm, attention and the residual sum."""
    return scoped(
        "attn",
        (
            *before(run, "attention", into="" if run.shape.latent else "qkv"),
            *forked(run, attention.operators(run, normed=run.shape.pre_norm)),
            *joined(run, "attention"),
        ),
    )


def feed_forward_part(run: Execution) -> tuple[Operator, ...]:
    """Return the norm, the feed-forward block and the residual sum."""
    return scoped(
        "mlp",
        (
            *before(run, "ffn", into="ffn in"),
            *forked(run, belonging("mlp", feed_forward.operators(run, normed=run.shape.pre_norm))),
            *joined(run, "ffn"),
        ),
    )


def before(run: Execution, part: str, into: str = "") -> tuple[Operator, ...]:
    """Return the norm in front of a part of the layer, if the model has one there."""
    norm = normalise(run, f"{part} norm", run.local, into=into)
    return (norm,) if run.shape.pre_norm else ()


def forked(run: Execution, operators: tuple[Operator, ...]) -> tuple[Operator, ...]:
    """Return a part of the layer, after a fork of the residual stream. Usually a norm in front adds
    the gradients of residual stream and part; otherwise the part's first operator does."""
    if run.shape.pre_norm or run.fusion.compiled:
        return operators
    first, *rest = operators
    size = float(run.local * run.model.hidden * (run.width + 2 * run.stream_width))
    added = MemoryBound(name=f"{first.name} residual grad", bytes=size)
    return (replace(first, input_gradient=(*first.input_gradient, added)), *rest)


def joined(run: Execution, part: str) -> tuple[Operator, ...]:
    """Return the operators that normalise a part's result, if the model does so, and add it to the
    residual stream."""
    norm = normalise(run, f"{part} output norm", run.local, residual=False)
    norms = (norm,) if run.shape.output_norms else ()
    return (*norms, dropout_add(run, f"{part} residual", run.local))


def _post_norm(run: Execution) -> tuple[Operator, ...]:
    return (
        *scoped(
            "attn",
            (
                *attention.operators(run),
                dropout_add(run, "attention residual", run.local),
                normalise(run, "attention norm", run.local),
            ),
        ),
        *scoped(
            "mlp",
            (
                *belonging("mlp", feed_forward.operators(run)),
                dropout_add(run, "ffn residual", run.local),
                normalise(run, "ffn norm", run.local),
            ),
        ),
    )
