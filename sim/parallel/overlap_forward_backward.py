"""Schedules whose forward and backward passes overlap in pairs: each stage is one pass ahead.

Where a backward pass follows the forward pass that it needs, both cannot run at the same time; one
more forward pass in front of all others parts them (Megatron-Core, pipeline_parallel/schedules.py,
`get_pp_rank_microbatches` with `overlap_moe_expert_parallel_comm`).
"""

from dataclasses import replace
from itertools import pairwise

from sim.program.schedule import Order, Schedule


def overlap_forward_backward(schedule: Schedule) -> Schedule:
    """The schedule with one more forward pass ahead, and forward passes overlapping the backward
    passes behind them; one that says which passes overlap stays as it is.

    >>> from sim.parallel.schedule import schedule
    >>> from sim.parallel.schedule_file import to_text
    >>> print(to_text(overlap_forward_backward(schedule("1f1b", stages=1, microbatches=3))))
    0F0,(0F1;0B0)OVERLAP_F_B,(0F2;0B1)OVERLAP_F_B,0B2
    """
    if schedule.pairs:
        return schedule
    orders = tuple(map(_ahead, schedule.orders))
    return replace(schedule, orders=orders, pairs=tuple(map(_pairs, orders)))


def _ahead(order: Order) -> Order:
    forward = [place for place, action in enumerate(order) if action.kind == "F"]
    passes = iter([order[place] for place in forward])
    moved = [next(passes)]
    for place, action in enumerate(order):
        if action.kind != "F":
            moved.append(action)
        elif place != forward[-1]:
            moved.append(next(passes))
    return tuple(moved)


def _pairs(order: Order) -> frozenset[int]:
    """The places of forward passes with a backward pass of another microbatch behind them."""
    return frozenset(
        place
        for place, (action, behind) in enumerate(pairwise(order))
        if action.kind == "F"
        and behind.kind in ("B", "I")
        and (action.microbatch, action.chunk) != (behind.microbatch, behind.chunk)
    )
