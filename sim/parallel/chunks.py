"""Which blocks each stage holds: the model's row cut by the plan's word or the stack's way.

A method of the plan says which layers of a chunk run again. Two are Megatron-LM's methods of full
recomputation (megatron/core/transformer/transformer_block.py, _checkpointed_forward). `block` runs
the first n layers of each chunk again. `uniform` keeps only the input of each unit of n layers;
before the backward pass of a unit all of its layers run again. torchtitan's `every` runs every
n-th layer of the model again (torchtitan/distributed/activation_checkpoint.py, _apply_layer_sac).
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate

from sim.config.errors import InputError
from sim.config.plugins import remembered
from sim.hardware.device import Device
from sim.hardware.stack import Stack
from sim.model import counts
from sim.model.block import ALONE, NOT, Again
from sim.model.checkpointing import FULL, NONE
from sim.model.execution import Words
from sim.model.kinds import FOLDER, is_layer
from sim.model.model import Model
from sim.model.transformer import DECODER_INPUT
from sim.parallel.job import Chunk, Job
from sim.parallel.layer_split import LAYERS, Balance, Split, explicit, split
from sim.parallel.plan import Plan
from sim.program.operations import Segment


def recomputed_layers(plan: Plan, kinds: Sequence[str], before: int) -> tuple[Again, ...]:
    """Return each block's part in recomputation, for a chunk after `before` layers; nothing if all
    blocks follow the plan's rule alone.

    >>> from sim.parallel.plan import Plan
    >>> plan = Plan(global_batch=1, recompute="full", recompute_method="block", recompute_layers=1)
    >>> recomputed_layers(plan, ("embedding", "dense", "dense"), 0) == (NOT, ALONE, NOT)
    True
    """
    method, each = plan.recompute_method, plan.recompute_layers or 1
    if method is None or (method == "uniform" and each == 1):
        return ()
    layers = [number for number, kind in enumerate(kinds) if is_layer(kind)]
    found = [NOT] * len(kinds)
    if method == "uniform":
        for first in range(0, len(layers), each):
            unit = layers[first : first + each]
            for number in unit:
                ended = tuple(kinds[layer] for layer in unit) if number == unit[-1] else ()
                found[number] = Again("in a unit", number == unit[0], ended)
        return tuple(found)
    for count, number in enumerate(layers):
        chosen = count < each if method == "block" else (before + count + 1) % each == 0
        found[number] = ALONE if chosen else NOT
    return tuple(found)


def check_method(plan: Plan, chunks: Iterable[Sequence[str]], where: str) -> None:
    """Raise `InputError` for a method without its number of layers or its kind of recomputation,
    and for more layers than a chunk (with "every": the model) has. `chunks` are kinds of blocks."""
    method, each = plan.recompute_method, plan.recompute_layers
    if method is None and each is None:
        return
    if method is None or each is None:
        given, missing = (
            ("layers", 'method = "block"') if method is None else ("method", "layers = 1")
        )
        fault = f"recompute_{given} without recompute_{missing.partition(' ')[0]}"
        raise InputError(where, fault, f"set recompute_{missing}, or leave both out")
    if plan.recompute == NONE:
        raise InputError(where, "recompute_method with recompute = 'none'", "say what runs again")
    if method == "uniform" and plan.recompute != FULL:
        fault = f"recompute_method = 'uniform' with recompute = {plan.recompute!r}"
        raise InputError(where, fault, 'its units run again as a whole: set recompute = "full"')
    counts = [sum(map(is_layer, kinds)) for kinds in chunks]
    most, of = (sum(counts), "the model has") if method == "every" else (max(counts), "a chunk has")
    if each > most:
        fault = f"recompute_layers = {each}, but {of} {most} layers at most"
        raise InputError(where, fault, f"set recompute_layers = {most}")


def chunks_of(
    model: Model, stack: Stack, plan: Plan, device: Device
) -> tuple[tuple[Chunk, ...], ...]:
    """Return the chunks of each stage. Raises `InputError` if the layers cannot be spread so."""
    if plan.pp == 1:
        if plan.layers is not None:
            explicit(plan.layers, model.layers, 1)
        return (_stage(model, plan, [(model.row, 0)]),)
    stages, chunks = plan.pp, plan.cuts // plan.pp
    if not model.alike:
        costs = _seconds(model, stack, plan, device)
        layers = split(model.layers, stages, chunks, balance=plan.layers or "cost", costs=costs)
    else:
        layers = _layers(model, stack, stages, chunks, _balance(model, stack, plan))
    cut = _cut(model.row, layers)
    if model.decoder_seq:
        from sim.parallel.encoder_decoder import begun

        cut = tuple(begun(model, piece) for piece in cut)
    return tuple(
        _stage(model, plan, [(cut[piece], sum(layers[:piece])) for piece in pieces])
        for pieces in plan.pieces
    )


def balanced(model: Model, stack: Stack, stages: int, chunks: int) -> Split:
    """Return the number of layers of each chunk that makes the costliest chunk cheapest, embedding
    and head included. Raises `InputError` if the layers cannot be spread so."""
    return _layers(model, stack, stages, chunks, "cost")


def _seconds(model: Model, stack: Stack, plan: Plan, device: Device) -> tuple[float, ...]:
    """Return the device seconds of each layer, forward and back, for a microbatch of this plan."""
    alone = replace(plan, pp=1, interleave=1, schedule="1f1b")
    chunks = ((Chunk(model.row),),)
    job = Job(model=model, plan=alone, stack=stack, device=device, chunks=chunks)

    def cost(kind: str) -> float:
        passes = (*job.work(kind, "F").flat(), *job.work(kind, "B").flat())
        return sum(item.device for item in passes if isinstance(item, Segment))

    return tuple(cost(kind) for kind in model.row)


def _layers(
    model: Model, stack: Stack, stages: int, chunks: int, balance: Balance | Split
) -> Split:
    head, embedding, costs = _costs_in_layers(model, stack.balance)
    return split(
        model.layers, stages, chunks, balance=balance, head=head, embedding=embedding, costs=costs
    )


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
            raise InputError(LAYERS, fault, "give it a layer")
        found.append(row[start:end])
        start = end
    return tuple(found)


def _stage(
    model: Model, plan: Plan, pieces: Sequence[tuple[tuple[str, ...], int]]
) -> tuple[Chunk, ...]:
    """Return the chunks of a stage from pieces of the row and the number of layers before each. The
    stage's first block that uses the word embedding holds its matrix."""
    tied = ("head", "mtp_head") if model.tied_embeddings else ()
    users = {"mtp_input", DECODER_INPUT, *tied, *(() if model.hears else ("embedding",))}
    using = [
        (number, place)
        for number, (kinds, _) in enumerate(pieces)
        for place, kind in enumerate(kinds)
        if kind in users
    ]
    first: Words = "first" if len(using) > 1 else "alone"
    return tuple(
        Chunk(
            kinds,
            recomputed_layers(plan, kinds, before),
            tuple(
                first if (number, place) in using[:1] else "again" for place in range(len(kinds))
            ),
        )
        for number, (kinds, before) in enumerate(pieces)
    )


def _balance(model: Model, stack: Stack, plan: Plan) -> Balance | tuple[int, ...]:
    """Return the split that the plan asks for, or else the stack's balance. If an "even"
    split would have a remainder, the balance is "ends" or "cost"."""
    layers, pieces = model.layers, plan.cuts
    if plan.layers is not None:
        return plan.layers
    first = plan.account_for_embedding_in_pipeline_split
    if (ends := first + plan.account_for_loss_in_pipeline_split) > 0:
        each, rest = divmod(layers + ends, pieces)
        if rest:
            fault = f"{layers} layers and {ends} of both ends do not divide into {pieces} pieces"
            raise InputError("plan", fault, "count other ends as layers, or give plan.layers")
        return (each - first, *[each] * (pieces - 2), each - (ends - first))
    if stack.balance != "even" or layers % pieces == 0:
        return stack.balance
    return "ends" if (layers + 2) % pieces == 0 else "cost"


@remembered(FOLDER)
def _costs_in_layers(model: Model, balance: str) -> tuple[float, float, tuple[float, ...]]:
    """Return the costs of the blocks after the layers, of the embedding, and of each layer, in
    FLOPs of the mean layer; a "quota" counts weights instead, as nanotron does."""
    if balance == "quota":
        own = {kind: counts.weights(model, kind) for kind in dict.fromkeys(model.row)}
    else:
        own = counts.block_flops(counts.whole(model, 1))
    costs = [own[kind] for kind in model.kinds]
    layer = sum(costs) / model.layers
    last = [place for place, kind in enumerate(model.row) if is_layer(kind)][model.layers - 1]
    behind = sum(own[kind] for kind in model.row[last + 1 :])
    return behind / layer, own["embedding"] / layer, tuple(cost / layer for cost in costs)


def check_versions(job: Job, where: str) -> None:
    """Raise `InputError` if a pipeline does not drain between steps, but its stages cannot update
    their weights alone. ZeRO-1 is allowed, as its shards of states stay within a stage."""
    plan = job.plan
    if not plan.versions(0):
        return
    looked_up = any("mtp_input" in chunk.kinds for chunks in job.chunks for chunk in chunks)
    untied = not (looked_up or job.model.decoder_seq)
    untie = "set change.model.tied_embeddings = false, or " if untied else ""
    for found, fault, remedy in (
        (plan.zero > 1, f"shards of gradients (zero = {plan.zero})", "set zero = 1, or "),
        (bool(plan.offload), "offload", "leave it out, or "),
        (plan.overlap_experts, "passes in pairs (overlap_experts)", "leave it out, or "),
        (len(job.embedding_holders) > 1, "a word embedding that stages share", untie),
    ):
        if found:
            fault = f"schedule = {plan.schedule!r} updates every stage alone, without {fault}"
            raise InputError(where, fault, f"{remedy}take a schedule that drains")
