"""Schedules whose forward passes overlap backward passes of other microbatches."""

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from sim.config.schema import section
from sim.program.schedule import Order, Schedule

if TYPE_CHECKING:
    from sim.collectives.compression import Compression
    from sim.model.lora import Lora
    from sim.model.stash import Stash
else:
    Compression = section("sim.collectives.compression:Compression")
    Lora = section("sim.model.lora:Lora")
    Stash = section("sim.model.stash:Stash")


def overlap_forward_backward(schedule: Schedule) -> Schedule:
    """Return the schedule with one more forward pass ahead, and with forward passes that overlap
    the backward passes after them. A schedule that already pairs passes stays as it is.

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
    """Return the places of forward passes right before a backward pass of another microbatch."""
    return frozenset(
        place
        for place, (action, behind) in enumerate(pairwise(order))
        if action.kind == "F"
        and behind.kind in ("B", "I")
        and (action.microbatch, action.chunk) != (behind.microbatch, behind.chunk)
    )
