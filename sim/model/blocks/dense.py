"""The dense transformer layer: attention and a feed-forward block, norms and residual sums.

With standard attention, in half precision, of b sequences of s tokens over t ranks it keeps
s b h (10 + 24 / t + 5 a s / (h t)) bytes, divided by t throughout under sequence parallelism
(Korthikanti et al. 2022, equations 2 and 4).
"""

from sim.model import attention, feed_forward
from sim.model.execution import Execution
from sim.model.operators import Operator, belonging, dropout_add, normalise, scoped


def operators(run: Execution) -> tuple[Operator, ...]:
    """Its operators on one rank, in forward order."""
    return _post_norm(run) if run.model.post_norm else _pre_norm(run)


def _pre_norm(run: Execution) -> tuple[Operator, ...]:
    return (*attention_part(run), *feed_forward_part(run))


def attention_part(run: Execution) -> tuple[Operator, ...]:
    """Attention behind its norm, and the residual sum."""
    return scoped(
        "attn",
        (
            normalise(run, "attention norm", run.local, into="" if run.model.latent else "qkv"),
            *attention.operators(run, normed=True),
            *joined(run, "attention"),
        ),
    )


def feed_forward_part(run: Execution) -> tuple[Operator, ...]:
    """The feed-forward block behind its norm, and the residual sum."""
    return scoped(
        "mlp",
        (
            normalise(run, "ffn norm", run.local, into="ffn in"),
            *belonging("mlp", feed_forward.operators(run, normed=True)),
            *joined(run, "ffn"),
        ),
    )


def joined(run: Execution, part: str) -> tuple[Operator, ...]:
    """What a part of the layer gives to the residual stream: normalised if need be, and added."""
    norm = normalise(run, f"{part} output norm", run.local, residual=False)
    own = (norm,) if run.model.output_norms else ()
    return (*own, dropout_add(run, f"{part} residual", run.local))


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
