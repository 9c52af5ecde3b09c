"""A layer of a decoder that reads an encoder's result: causal attention to the decoder's tokens,
attention to all of the encoder's tokens, and a feed-forward block (Vaswani et al. 2017, section
3.1; pre-norm as in T5)."""

from dataclasses import replace

from sim.model.blocks.dense import attention_part, feed_forward_part, joined
from sim.model.encoder_decoder import cross_attention, decoded
from sim.model.execution import Execution
from sim.model.operators import Operator, normalise, scoped


def operators(run: Execution) -> tuple[Operator, ...]:
    """Return the block's operators on one rank, in forward order."""
    decoder = decoded(run)
    decoder = replace(
        decoder, model=replace(decoder.shape, causal=True, decoder_seq=0, pattern="dense")
    )
    return (
        *attention_part(decoder),
        *scoped(
            "attn",
            (
                normalise(decoder, "cross norm", decoder.local, into="cross q"),
                *cross_attention(run),
                *joined(decoder, "cross"),
            ),
        ),
        *feed_forward_part(decoder),
    )
