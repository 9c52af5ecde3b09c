"""The layer of a decoder behind an encoder: attention to its own tokens in front of each, to all of
the encoder's, and a feed-forward block (Vaswani et al. 2017, section 3.1; pre-norm as in T5)."""

from dataclasses import replace

from sim.model.blocks.dense import attention_part, feed_forward_part, joined
from sim.model.encoder_decoder import cross_attention, decoded
from sim.model.execution import Execution
from sim.model.operators import Operator, normalise, scoped


def operators(run: Execution) -> tuple[Operator, ...]:
    """Its operators on one rank, in forward order."""
    own = decoded(run)
    own = replace(own, model=replace(own.shape, causal=True, decoder_seq=0, pattern="dense"))
    return (
        *attention_part(own),
        *scoped(
            "attn",
            (
                normalise(own, "cross norm", own.local, into="cross q"),
                *cross_attention(run),
                *joined(own, "cross"),
            ),
        ),
        *feed_forward_part(own),
    )
