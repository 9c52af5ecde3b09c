"""Schedules of whole backward passes in which a stage takes several chunks of the model in turn.

Microbatches go in groups through chunk 0, then the same group through chunk 1, and so on. The
bubble is (p-1) / (v m + p-1) of a step on p equal stages of v chunks (Narayanan et al. 2021,
section 2.2; Lamy-Poirier 2022, section 4.1).
"""

from collections.abc import Iterable

from sim.parallel.schedule import Entry
from sim.parallel.schedules.flush import alternate, bubble
from sim.program.actions import Action, Kind
from sim.program.schedule import Order, Schedule, in_loops


def interleaved(stages: int, microbatches: int, chunks: int) -> Schedule:
    """Interleaved 1F1B: stage s starts with 2 (p-s-1) + (v-1) n forwards, in groups of n.

    Megatron-Core, `get_pp_rank_microbatches` and `get_schedule_table`. (Megatron-LM's first
    versions ran everything forward before anything backward where m = p; the bubble is the same.)
    """
    group = group_size(stages, microbatches)
    forward = grouped("F", microbatches, range(chunks), group=group)
    backward = grouped("B", microbatches, range(chunks)[::-1], group=group)
    more = (chunks - 1) * group
    orders = (
        alternate(forward, backward, 2 * (stages - stage - 1) + more) for stage in range(stages)
    )
    return Schedule(tuple(orders), in_loops(stages, chunks), "interleaved")


def group_size(stages: int, microbatches: int) -> int:
    """The smallest `microbatch_group_size_per_vp_stage` that Megatron-Core takes: the stages, or
    more where these would leave a last group of fewer microbatches than stages.

    PyTorch's rounds are as large wherever it takes that number (`ScheduleInterleaved1F1B`).

    >>> [group_size(4, microbatches) for microbatches in (8, 9, 10, 11)]
    [4, 5, 5, 6]
    """
    sizes = range(stages, max(microbatches, stages) + 1)
    return next(n for n in sizes if microbatches % n == 0 or microbatches % n >= stages)


def looped_bfs(stages: int, microbatches: int, chunks: int) -> Schedule:
    """Breadth first: all microbatches through a chunk before any goes through the next one.

    Backward passes take the microbatches in reverse, as PyTorch's `ScheduleLoopedBFS` does.
    """
    forward = grouped("F", microbatches, range(chunks), group=microbatches)
    backward = grouped("B", microbatches, range(chunks), group=microbatches)[::-1]
    return Schedule((forward + backward,) * stages, in_loops(stages, chunks), "looped-bfs")


def grouped(kind: Kind, microbatches: int, chunks: Iterable[int], *, group: int) -> Order:
    """Groups of microbatches, each through the chunks in turn; the last may be smaller."""
    chunks = tuple(chunks)
    return tuple(
        Action(kind, i, chunk)
        for first in range(0, microbatches, group)
        for chunk in chunks
        for i in range(first, min(first + group, microbatches))
    )


def as_many(stages: int) -> int:
    """As many microbatches as stages."""
    return stages


SCHEDULES = (
    Entry(
        name="interleaved",
        paper="Narayanan et al. 2021, arXiv 2104.04473, figure 4 (bottom)",
        order=interleaved,
        chunks=None,
        group=as_many,
        least=as_many,
        uneven=True,
        bubble=bubble,
    ),
    Entry(
        name="looped-bfs",
        paper="Lamy-Poirier 2022, arXiv 2211.05953, figure 2d",
        order=looped_bfs,
        chunks=None,
        bubble=bubble,
    ),
)
