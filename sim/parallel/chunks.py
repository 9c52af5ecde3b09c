"""Which blocks each stage holds: the model's row of blocks, cut as the plan or the stack says."""

from collections.abc import Sequence
from itertools import accumulate

from sim.config.errors import InputError
from sim.config.plugins import remembered
from sim.hardware.device import Device
from sim.hardware.stack import Stack
from sim.model.block import Again
from sim.model.execution import Words
from sim.model.kinds import FOLDER, is_layer
from sim.model.model import Model
from sim.model.transformer import DECODER_INPUT
from sim.parallel.job import Chunk
from sim.parallel.plan import Plan


def chunks_of(
    model: Model, stack: Stack, plan: Plan, device: Device
) -> tuple[tuple[Chunk, ...], ...]:
    """Return the chunks of each stage. Raises `InputError` if the layers do not fit into them."""
    layers = _layers(model, stack, plan, device)
    if plan.pp == 1:
        return (_stage(model, plan, [(model.row, 0)]),)
    cut = _cut(model.row, layers)
    if model.decoder_seq:
        from sim.parallel.encoder_decoder import begun

        cut = tuple(begun(model, piece) for piece in cut)
    return tuple(
        _stage(model, plan, [(cut[piece], sum(layers[:piece])) for piece in pieces])
        for pieces in plan.pieces
    )


def _layers(model: Model, stack: Stack, plan: Plan, device: Device) -> tuple[int, ...]:
    """Return the number of layers of each piece: equal unless plan or stack say otherwise."""
    counted = plan.account_for_embedding_in_pipeline_split
    counted = counted or plan.account_for_loss_in_pipeline_split
    usual = model.alike and stack.balance == "even" and not counted
    even = plan.pp == 1 or (usual and model.layers % plan.cuts == 0)
    if plan.layers is None and even:
        return (model.layers // plan.cuts,) * plan.cuts
    from sim.parallel.uneven_layers import layers_of

    return layers_of(model, stack, plan, device)


@remembered(FOLDER)
def _cut(row: tuple[str, ...], layers: tuple[int, ...]) -> tuple[tuple[str, ...], ...]:
    """Cut the row of blocks into pieces with these numbers of layers. The first piece also has the
    embedding, and the last piece all blocks after the layers. A block between two layers goes with
    the second layer. Raises `InputError` for an empty piece."""
    places = [place for place, kind in enumerate(row) if is_layer(kind)]
    found, start = list[tuple[str, ...]](), 0
    for number, done in enumerate(accumulate(layers)):
        end = places[done - 1] + 1 if done else places[0]
        end = len(row) if number == len(layers) - 1 else end
        if start == end:
            fault = f"chunk {number} of {len(layers)} would hold nothing"
            raise InputError("plan, layers", fault, "give it a layer")
        found.append(row[start:end])
        start = end
    return tuple(found)


def _stage(
    model: Model, plan: Plan, pieces: Sequence[tuple[tuple[str, ...], int]]
) -> tuple[Chunk, ...]:
    """Return the chunks of a stage from pieces of the row and the number of layers before each. The
    stage's first block that uses the word embedding holds the embedding's matrix."""
    tied = ("head", "mtp_head") if model.tied_embeddings else ()
    users = {"mtp_input", DECODER_INPUT, *tied, *(() if model.hears else ("embedding",))}
    using = [
        (number, place)
        for number, (kinds, _) in enumerate(pieces)
        for place, kind in enumerate(kinds)
        if kind in users
    ]
    first: Words = "first" if len(using) > 1 else "alone"
    again: list[tuple[Again, ...]] = [()] * len(pieces)
    if plan.recompute_method is not None:
        from sim.parallel.recompute_method import recomputed_layers

        again = [recomputed_layers(plan, kinds, before) for kinds, before in pieces]
    return tuple(
        Chunk(
            kinds,
            again[number],
            tuple(
                first if (number, place) in using[:1] else "again" for place in range(len(kinds))
            ),
        )
        for number, (kinds, _) in enumerate(pieces)
    )
