"""Shared experts that run beside the all-to-alls of the routed tokens.

Megatron-Core's `moe_shared_expert_overlap` (megatron/core/transformer/moe/token_dispatcher.py and
shared_experts.py) runs shared experts on a stream of their own. Their first product and activation
run while tokens are dispatched, their second product while tokens are combined. In the backward
pass, their gradients run beside the all-to-alls of the same operators.
"""

from collections.abc import Sequence

from sim.model.kernels import Item, Kernel, Overlap
from sim.model.operators import Items, Operator
from sim.program.operations import Collective

SHARED = "shared_experts"


def beside_tokens(operators: Sequence[Operator], items: Sequence[Items]) -> list[Items]:
    """Return the items of a layer's operators, with kernels of shared experts beside all-to-alls.
    `items` are the items of each operator without this overlap. Tensor-parallel collectives of
    shared experts stay in place, as do kernels that already run beside such a collective."""
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
    """Return the place of the first all-to-all of tokens in a row of items, if there is one."""
    sent = (
        place
        for place, item in enumerate(row)
        if isinstance(item, Collective) and item.kind == "all_to_all"
    )
    return next(sent, None)


def _taken(row: list[Item]) -> list[Kernel]:
    """Take the kernels that run beside no collective out of a row, and return them."""
    kernels = [item for item in row if isinstance(item, Kernel)]
    row[:] = [item for item in row if not isinstance(item, Kernel)]
    return kernels
