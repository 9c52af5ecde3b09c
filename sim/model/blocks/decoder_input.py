"""The block between encoder and decoder: the encoder's last norm and dropout, and the embedding of
the decoder's tokens. All layers of the decoder read the encoder's result. The decoder uses the
encoder's word embedding (Raffel et al. 2020, section 2.1; transformers, modeling_t5.py, T5Stack).
"""

from dataclasses import replace

from sim.model.blocks import embedding
from sim.model.encoder_decoder import decoded, memory
from sim.model.execution import Execution
from sim.model.operators import Operator, normalise

LAYER = False


def operators(run: Execution) -> tuple[Operator, ...]:
    """Return the block's operators on one rank, in forward order."""
    decoder, first = decoded(run), run.shape.hears or run.words != "again"
    words = embedding.look_up(decoder)
    positions = embedding.positions(decoder)
    if decoder.shape.positions == "learned":
        table = embedding.positions(run) if first else Operator()  # the encoder's table
        positions = replace(positions, parameters=table.parameters, matrices=table.matrices)
    return (
        normalise(run, "encoder norm", run.local, residual=False),
        embedding.dropped(run),
        memory(run),
        words if first else embedding.looked_up_again(decoder),
        positions,
        embedding.dropped(decoder),
    )
