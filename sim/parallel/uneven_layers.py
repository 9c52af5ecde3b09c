"""How many layers each chunk holds if the split is not even, or an even split has a remainder."""

from dataclasses import replace

from sim.config.errors import InputError
from sim.config.plugins import remembered
from sim.hardware.device import Device
from sim.hardware.stack import Stack
from sim.model import counts
from sim.model.kinds import FOLDER, is_layer
from sim.model.model import Model
from sim.parallel.job import Chunk, Job
from sim.parallel.layer_split import Balance, Split, split
from sim.parallel.plan import Plan
from sim.program.operations import Segment


def layers_of(model: Model, stack: Stack, plan: Plan, device: Device) -> Split:
    """Return the number of layers of each piece, as the plan or the stack asks. Raises `InputError`
    if this is impossible."""
    stages, chunks = plan.pp, plan.cuts // plan.pp
    if model.alike:
        return _layers(model, stack, stages, chunks, _balance(model, stack, plan))
    costs = _seconds(model, stack, plan, device)
    return split(model.layers, stages, chunks, balance=plan.layers or "cost", costs=costs)


def balanced(model: Model, stack: Stack, stages: int, chunks: int) -> Split:
    """Return the number of layers of each chunk that makes the costliest chunk cheapest, embedding
    and head included. Raises `InputError` if this is impossible."""
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
            fault = f"{layers} layers and {ends} counted ends do not divide by {pieces} pieces"
            raise InputError("plan", fault, "count other ends as layers, or give plan.layers")
        return (each - first, *[each] * (pieces - 2), each - (ends - first))
    if stack.balance != "even" or layers % pieces == 0:
        return stack.balance
    return "ends" if (layers + 2) % pieces == 0 else "cost"


@remembered(FOLDER)
def _costs_in_layers(model: Model, balance: str) -> tuple[float, float, tuple[float, ...]]:
    """Return the costs of the blocks after the layers, of the embedding, and of each layer, in
    FLOPs of the mean layer. A "quota" counts weights instead, as nanotron does."""
    if balance == "quota":
        by_kind = {kind: counts.weights(model, kind) for kind in dict.fromkeys(model.row)}
    else:
        by_kind = counts.block_flops(counts.whole(model, 1))
    costs = [by_kind[kind] for kind in model.kinds]
    layer = sum(costs) / model.layers
    last = [place for place, kind in enumerate(model.row) if is_layer(kind)][model.layers - 1]
    behind = sum(by_kind[kind] for kind in model.row[last + 1 :])
    return behind / layer, by_kind["embedding"] / layer, tuple(cost / layer for cost in costs)
