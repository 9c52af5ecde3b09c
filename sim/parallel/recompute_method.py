"""Which layers of a chunk run again: the methods of recomputation.

`block` and `uniform` are Megatron-LM's methods of full recomputation
(megatron/core/transformer/transformer_block.py, _checkpointed_forward). `block` runs the first n
layers of each chunk again. `uniform` keeps only the input of each unit of n layers; before the
backward pass of a unit all of its layers run again. torchtitan's `every` runs every n-th layer of
the model again (torchtitan/distributed/activation_checkpoint.py, _apply_layer_sac)."""

from collections.abc import Iterable, Sequence

from sim.config.errors import InputError
from sim.model.block import ALONE, NOT, Again
from sim.model.checkpointing import FULL, NONE
from sim.model.kinds import is_layer
from sim.parallel.plan import Plan


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
    if method is None or each is None:
        given, missing = (
            ("layers", 'method = "block"') if method is None else ("method", "layers = 1")
        )
        fault = f"recompute_{given} without recompute_{missing.partition(' ')[0]}"
        raise InputError(where, fault, f"set recompute_{missing}, or leave both out")
    if plan.recompute == NONE:
        raise InputError(where, "recompute_method with recompute = 'none'", 'set it to "full"')
    if method == "uniform" and plan.recompute != FULL:
        fault = f"recompute_method = 'uniform' with recompute = {plan.recompute!r}"
        raise InputError(where, fault, 'its units run again as a whole: set recompute = "full"')
    counts = [sum(map(is_layer, kinds)) for kinds in chunks]
    most, of = (sum(counts), "the model has") if method == "every" else (max(counts), "a chunk has")
    if each > most:
        fault = f"recompute_layers = {each}, but {of} {most} layers at most"
        raise InputError(where, fault, f"set recompute_layers = {most}")
