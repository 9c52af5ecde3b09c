"""V-Half and V-Min: V-shaped schedules with few microbatches in flight.

Qi et al. 2024, arXiv 2405.15362, "Pipeline parallelism with controllable memory": each microbatch
repeats a building block of passes, six passes after the previous microbatch. The longer the block
lasts on a stage, the more the stage keeps. If a chunk's F, I and W take equal times, 1F1B has a
bubble of 6 (p-1) F and a memory of 2p chunks. V-Half has half of that bubble and about half of that
memory; V-Min has two thirds of the bubble and about a third of the memory (rounded to units).
Offsets in the blocks are from the authors' code (sail-sg/zero-bubble-pipeline-parallelism,
zerobubble/scheduler/zbv_greedy.py).
"""

from sim.parallel.bubble_filling import filled, units
from sim.parallel.schedule import Entry
from sim.program.schedule import Action, Kind, Order, Schedule
from sim.program.v_places import in_a_v

_PERIOD = 6  # F, I and W of both chunks

Block = tuple[tuple[Kind, int, int], ...]  # kind, chunk, and when it runs


def v_half(stages: int, microbatches: int, chunks: int = 2) -> Schedule:
    """V-Half: passes take two time units per stage down the V, and one on the way up. With an even
    number of stages the block has a pause, so that the next block does not collide with it."""
    p, pause = stages, 0 if stages % 2 else 3
    blocks: list[Block] = [
        (
            ("F", 0, 2 * s),
            ("F", 1, 3 * p - s - 2),
            ("I", 1, 3 * p + pause + 2 * s - 1),
            ("I", 0, 6 * p + pause - s - 2),
        )
        for s in range(p)
    ]
    return _squeezed(blocks, microbatches, half_in_flight(p), "v-half")


def v_min(stages: int, microbatches: int, chunks: int = 2) -> Schedule:
    """V-Min: all passes take one unit of time per stage, the least possible. With a multiple of
    three stages the block has a pause."""
    p, pause = stages, 0 if stages % 3 else 2
    blocks: list[Block] = [
        (
            ("F", 0, s),
            ("F", 1, 2 * p - s - 1),
            ("I", 1, 2 * p + pause + s),
            ("I", 0, 4 * p + pause - s - 1),
        )
        for s in range(p)
    ]
    return _squeezed(blocks, microbatches, least_in_flight(p), "v-min")


def half_in_flight(stages: int) -> int:
    """Return the chunks of microbatches that a stage of V-Half keeps; 1F1B's first stage keeps 2p.

    >>> [half_in_flight(stages) for stages in (4, 5, 8, 16)]
    [6, 6, 10, 18]
    """
    return 2 * (stages // 2) + 2


def least_in_flight(stages: int) -> int:
    """Return the chunks of microbatches that a stage of V-Min keeps, the least possible.

    >>> [least_in_flight(stages) for stages in (4, 5, 8, 16)]
    [4, 6, 8, 12]
    """
    return 2 * (stages // 3) + (4 if stages % 3 == 2 else 2)


def _squeezed(blocks: list[Block], microbatches: int, most: int, name: str) -> Schedule:
    """Return the schedule of repeated blocks, with passes as early as possible, and with weight
    gradients in waits."""
    stages, pieces = len(blocks), in_a_v(len(blocks))
    orders = [_in_order(block, microbatches) for block in blocks]
    return Schedule(filled(orders, pieces, units(stages, 2, most)).orders, pieces, name)


def _in_order(block: Block, microbatches: int) -> Order:
    passes = [
        (time + _PERIOD * microbatch, Action(kind, microbatch, chunk))
        for kind, chunk, time in block
        for microbatch in range(microbatches)
    ]
    return tuple(action for _, action in sorted(passes))


def _half_bubble(stages: int, microbatches: int, chunks: int) -> float:
    """Return the share of a bubble of 3 (p-1) F (F less if p is odd) beside passes of 6 m F."""
    bubble = 3 * (stages - 1) - (stages % 2 and stages > 1)
    return bubble / (_PERIOD * microbatches + bubble)


def _least_bubble(stages: int, microbatches: int, chunks: int) -> float:
    """Return the share of a bubble of 4 (p-1) F (F more if 3 divides p, else F less) beside passes
    of 6 m F."""
    bubble = 4 * (stages - 1) + (-1 if stages % 3 else 1) if stages > 1 else 0
    return bubble / (_PERIOD * microbatches + bubble)


SCHEDULES = (
    Entry(
        name="v-half",
        paper="Qi et al. 2024, arXiv 2405.15362, figure 3",
        order=v_half,
        chunks=2,
        bubble=_half_bubble,
        splits_backward=True,
    ),
    Entry(
        name="v-min",
        paper="Qi et al. 2024, arXiv 2405.15362, figure 3",
        order=v_min,
        chunks=2,
        bubble=_least_bubble,
        splits_backward=True,
    ),
)
