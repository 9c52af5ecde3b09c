"""Encoder and decoder in a pipeline, as Megatron-LM runs them.

Every layer of the decoder reads the encoder's result, so that stages of the decoder hand it on
beside their activations, and its gradients back (megatron/core/pipeline_parallel/schedules.py,
`get_tensor_shapes`: both tensors behind the split). A stage may hold layers of both.
"""

from sim.model.model import Model
from sim.model.transformer import DECODER, DECODER_INPUT

ENCODER_STAGE, DECODER_STAGE = "encoder_stage", "decoder_stage"
_BEHIND = (DECODER, DECODER_STAGE, DECODER_INPUT)

Kinds = tuple[str, ...]


def begun(model: Model, own: Kinds) -> Kinds:
    """A piece of a row with what it needs in front of its first layer."""
    if own[0] in ("embedding", DECODER_INPUT, "head"):
        return own
    if own[0] == DECODER:
        return (DECODER_STAGE, *own)
    relative = getattr(model, "positions", "") == "relative"
    return (ENCODER_STAGE, *own) if relative else own


def handed_tokens(model: Model, kinds: Kinds, *, behind: bool) -> int:
    """Tokens of a sequence whose activations come to a chunk, or go on `behind` it: the encoder's,
    and in the decoder also its own."""
    within = kinds[-1] in _BEHIND if behind else kinds[0] in (DECODER_STAGE, "head")
    return model.seq + model.decoder_seq * within


def kept_tokens(model: Model, kinds: Kinds) -> int:
    """Tokens of a sequence whose activations a chunk itself has made last."""
    return model.decoder_seq if kinds[-1] in _BEHIND else model.seq
