"""The input of a decoder on a pipeline stage that has no word embedding but for it: a copy, whose
gradients are summed with the encoder's (Megatron-LM, megatron/core/parallel_state.py, the rank of
`pipeline_model_parallel_split_rank` among `embedding_ranks`)."""

from sim.model.blocks import decoder_input, embedding
from sim.model.encoder_decoder import decoded
from sim.model.execution import Execution
from sim.model.operators import Operator

LAYER = False


def operators(run: Execution) -> tuple[Operator, ...]:
    """Its operators on one rank, in forward order."""
    decoder = decoded(run)
    own = {"embedding": embedding.look_up(decoder)}
    return tuple(own.get(each.name, each) for each in decoder_input.operators(run))
