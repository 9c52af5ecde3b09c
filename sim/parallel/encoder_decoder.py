"""Encoder and decoder in a pipeline, as Megatron-LM runs them.

Every layer of the decoder reads the encoder's result. So stages of the decoder hand on the result
beside their activations, and hand back its gradients (megatron/core/pipeline_parallel/schedules.py,
`get_tensor_shapes`: both tensors after the split). A stage may hold layers of both.
"""

from sim.model.model import Model
from sim.model.transformer import DECODER, DECODER_INPUT

ENCODER_STAGE, DECODER_STAGE = "encoder_stage", "decoder_stage"
_BEHIND = (DECODER, DECODER_STAGE, DECODER_INPUT)

Kinds = tuple[str, ...]


def begun(model: Model, piece: Kinds) -> Kinds:
    """Return a piece of the row with the block that its first layer needs in front, if any."""
    if piece[0] in ("embedding", DECODER_INPUT, "head"):
        return piece
    if piece[0] == DECODER:
        return (DECODER_STAGE, *piece)
    relative = getattr(model, "positions", "") == "relative"
    return (ENCODER_STAGE, *piece) if relative else piece


def handed_tokens(model: Model, kinds: Kinds, *, behind: bool) -> int:
    """Return how many tokens of a sequence have activations that enter a chunk, or with `behind`
    leave it: the encoder's tokens, and in the decoder also the decoder's."""
    within = kinds[-1] in _BEHIND if behind else kinds[0] in (DECODER_STAGE, "head")
    return model.seq + model.decoder_seq * within


def kept_tokens(model: Model, kinds: Kinds) -> int:
    """Return the number of tokens of a sequence in the result of a chunk's last block."""
    return model.decoder_seq if kinds[-1] in _BEHIND else model.seq
