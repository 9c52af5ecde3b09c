"""In front of the layers of a pipeline stage that goes on with a decoder: the encoder's result,
which came along with the activations and is kept once for all of them, and the decoder's biases of
relative positions."""

from sim.model.blocks import encoder_stage
from sim.model.encoder_decoder import decoded, memory
from sim.model.execution import Execution
from sim.model.operators import Operator

LAYER = False


def operators(run: Execution) -> tuple[Operator, ...]:
    """Its operators on one rank, in forward order."""
    return (memory(run), *encoder_stage.operators(decoded(run)))
