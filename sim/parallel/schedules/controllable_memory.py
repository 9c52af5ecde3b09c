"""V-Half and V-Min: a V-shaped way whose passes follow each other so that little is in flight.

Qi et al. 2024, arXiv 2405.15362, "Pipeline parallelism with controllable memory": each microbatch
takes the same building block, six passes later than the one before it, and how long the block lasts
on a stage says how much the stage keeps. With F = I = W those of a chunk, 1F1B's bubble is
6 (p-1) F and its memory 2p; V-Half's is half as long for about half the memory, V-Min's two thirds
as long for about a third (to a unit). Offsets of the blocks as in the authors' own code
(sail-sg/zero-bubble-pipeline-parallelism, zerobubble/scheduler/zbv_greedy.py).
"""

from sim.parallel.bubble_filling import filled, units
from sim.parallel.schedule import Entry
from sim.program.actions import Action, Kind
from sim.program.schedule import Order, Schedule, in_a_v

_PERIOD = 6  # F, I and W of both chunks

Block = tuple[tuple[Kind, int, int], ...]  # kind, chunk, and when it runs


def v_half(stages: int, microbatches: int, chunks: int = 2) -> Schedule:
    """Forward passes go down two units a stage and up one, input gradients likewise.

    The next block must not run into this one, so that an even number of stages takes a pause.
    """
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
    """All passes go one unit a stage, which is as fast as can be; a multiple of three takes a
    pause."""
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
    """Microbatches and chunks that a stage of V-Half keeps; 1F1B's first one keeps 2p halves.

    >>> [half_in_flight(stages) for stages in (4, 5, 8, 16)]
    [6, 6, 10, 18]
    """
    return 2 * (stages // 2) + 2


def least_in_flight(stages: int) -> int:
    """The least microbatches in flight, as V-Min has them.

    >>> [least_in_flight(stages) for stages in (4, 5, 8, 16)]
    [4, 6, 8, 12]
    """
    return 2 * (stages // 3) + (4 if stages % 3 == 2 else 2)


def _squeezed(blocks: list[Block], microbatches: int, most: int, name: str) -> Schedule:
    """Blocks one after the other, passes as early as can be, W where there is time."""
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
    """3 (p-1) F, or F less where p is odd, of a step of 6 m F more."""
    bubble = 3 * (stages - 1) - (stages % 2 and stages > 1)
    return bubble / (_PERIOD * microbatches + bubble)


def _least_bubble(stages: int, microbatches: int, chunks: int) -> float:
    """4 (p-1) F, or F more where 3 divides p, else F less, of a step of 6 m F more."""
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
