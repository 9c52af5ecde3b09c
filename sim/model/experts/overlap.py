"""Shared experts beside tokens that are under way to the others and back.

Megatron-Core's `moe_shared_expert_overlap` (megatron/core/transformer/moe/token_dispatcher.py and
shared_experts.py): on a stream of their own the first product and the activation run while tokens
are dispatched, the second product while they are combined; backward their gradients in turn.
"""

from collections.abc import Sequence

from sim.model.kernels import Item, Kernel, Overlap
from sim.model.operators import Items, Operator
from sim.program.operations import Collective

SHARED = "shared_experts"


def beside_tokens(operators: Sequence[Operator], items: Sequence[Items]) -> list[Items]:
    """Operators of a layer with kernels of shared experts beside the all-to-alls.

    `items` is what each runs in turn. Collectives of shared experts (tensor parallelism's) stay
    where they are, as do kernels beside these.
    """
    rows = [list(each) for each in items]
    shared = [number for number, each in enumerate(operators) if SHARED in each.modules]
    for number, operator in enumerate(operators):
        partners = {"dispatch": shared[:-1], "combine": shared[-1:]}.get(operator.name, [])
        if partners and (place := _sending(rows[number])) is not None:
            hidden = [kernel for partner in partners for kernel in _taken(rows[partner])]
            call = rows[number][place]
            assert isinstance(call, Collective)
            if hidden:
                rows[number][place] = Overlap(collective=call, kernels=tuple(hidden))
    return [tuple(row) for row in rows]


def _sending(row: Sequence[Item]) -> int | None:
    """The places where tokens are sent to other ranks."""
    sent = (
        place
        for place, item in enumerate(row)
        if isinstance(item, Collective) and item.kind == "all_to_all"
    )
    return next(sent, None)


def _taken(row: list[Item]) -> list[Kernel]:
    """The kernels of a row that nothing else is beside, which are taken out of it."""
    kernels = [item for item in row if isinstance(item, Kernel)]
    row[:] = [item for item in row if not isinstance(item, Kernel)]
    return kernels
