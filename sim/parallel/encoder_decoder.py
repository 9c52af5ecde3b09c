"""Encoder and decoder in a pipeline, as Megatron-LM runs them.

Every layer of the decoder reads the encoder's result, so that stages of the decoder hand it on
beside their activations, and its gradients back (megatron/core/pipeline_parallel/schedules.py,
`get_tensor_shapes`: both tensors behind the split). A stage may hold layers of both.
"""

from collections.abc import Sequence

from sim.model.model import Model
from sim.model.transformer import DECODER, DECODER_INPUT
from sim.parallel.plan import Plan

APART, ENCODER_STAGE, DECODER_STAGE = "decoder_input_apart", "encoder_stage", "decoder_stage"
_BEHIND = (DECODER, DECODER_STAGE, DECODER_INPUT, APART)

Kinds = tuple[str, ...]


def staged(model: Model, plan: Plan, pieces: Sequence[Kinds]) -> list[Kinds]:
    """The pieces of a row with what their stages need beside the layers."""
    found = [_begun(model, pieces, number) for number in range(len(pieces))]
    words = {"embedding", *(("head",) if model.tied_embeddings else ())}
    for numbers in plan.pieces:
        if words.isdisjoint(kind for number in numbers for kind in pieces[number]):
            for number in numbers:
                own = (APART if kind == DECODER_INPUT else kind for kind in found[number])
                found[number] = tuple(own)
    return found


def _begun(model: Model, pieces: Sequence[Kinds], number: int) -> Kinds:
    """A piece with what it needs in front of its first layer."""
    own = pieces[number]
    if number == 0 or own[0] in (DECODER_INPUT, "head"):
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
