"""Which layers of a chunk run again: every one, or those that a plan's method chooses.

Megatron-LM's methods of full recomputation (megatron/core/transformer/transformer_block.py,
_checkpointed_forward): `block` runs the first n layers of each chunk again and keeps all of the
others; `uniform` keeps the input of every n-th layer only, and a backward pass that comes to the
end of such a unit runs its n layers again at once. torchtitan's `every` runs every n-th layer of
the model again (torchtitan/distributed/activation_checkpoint.py, _apply_layer_sac).
"""

from collections.abc import Iterable, Sequence

from sim.config.errors import InputError
from sim.model.block import ALONE, NOT, Again
from sim.model.checkpointing import FULL, NONE
from sim.model.kinds import is_layer
from sim.parallel.plan import Plan


def recomputed_layers(plan: Plan, kinds: Sequence[str], before: int) -> tuple[Again, ...]:
    """How each block of a chunk takes part in recomputation, `before` layers having come before;
    nothing where all of them do as the plan's rule says.

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
    """Raise `InputError` for a method without layers, or without what it is a method of, and for
    units of more layers than any of the chunks has, each given by the kinds of its blocks."""
    method, each = plan.recompute_method, plan.recompute_layers
    if method is None and each is None:
        return
    if method is None or each is None:
        given, missing = ("layers", "method") if method is None else ("method", "layers")
        fault = f"recompute_{given} without recompute_{missing}"
        raise InputError(where, fault, f"set recompute_{missing}, or leave both out")
    if plan.recompute == NONE:
        raise InputError(where, "recompute_method with recompute = 'none'", "say what runs again")
    if method == "uniform" and plan.recompute != FULL:
        fault = f"recompute_method = 'uniform' with recompute = {plan.recompute!r}"
        raise InputError(where, fault, 'its units run again as a whole: set recompute = "full"')
    most = max(sum(map(is_layer, kinds)) for kinds in chunks)
    if method == "uniform" and each > most:
        fault = f"recompute_layers = {each}, but the chunks of a stage have {most} layers at most"
        raise InputError(where, fault, f"set recompute_layers at most {most}")
