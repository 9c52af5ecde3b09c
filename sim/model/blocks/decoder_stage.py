"""The block in front of a pipeline stage that begins in the middle of a decoder.

It holds the encoder's result, which arrives with the activations and is kept once for all layers of
the stage. It also computes the decoder's biases of relative positions.
"""

from sim.model.blocks import encoder_stage
from sim.model.encoder_decoder import decoded, memory
from sim.model.execution import Execution
from sim.model.operators import Operator

LAYER = False


def operators(run: Execution) -> tuple[Operator, ...]:
    """Return the block's operators on one rank, in forward order."""
    return (memory(run), *encoder_stage.operators(decoded(run)))
