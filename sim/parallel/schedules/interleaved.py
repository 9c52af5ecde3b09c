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
    """Interleaved 1F1B: stage s starts with 2 (p-s-1) + (v-1) p forwards.

    Megatron-LM, `get_pp_rank_microbatches` and `get_schedule_table`. (Its first versions ran
    everything forward before anything backward where m = p; the bubble is the same.)
    """
    forward = grouped("F", microbatches, range(chunks), group=stages)
    backward = grouped("B", microbatches, range(chunks)[::-1], group=stages)
    more = (chunks - 1) * stages
    orders = (
        alternate(forward, backward, 2 * (stages - stage - 1) + more) for stage in range(stages)
    )
    return Schedule(tuple(orders), in_loops(stages, chunks), "interleaved")


def looped_bfs(stages: int, microbatches: int, chunks: int) -> Schedule:
    """Breadth first: all microbatches through a chunk before any goes through the next one.

    Backward passes take the microbatches in reverse, as PyTorch's `ScheduleLoopedBFS` does.
    """
    forward = grouped("F", microbatches, range(chunks), group=microbatches)
    backward = grouped("B", microbatches, range(chunks), group=microbatches)[::-1]
    return Schedule((forward + backward,) * stages, in_loops(stages, chunks), "looped-bfs")


def grouped(kind: Kind, microbatches: int, chunks: Iterable[int], *, group: int) -> Order:
    """Groups of microbatches, each through the chunks in turn."""
    return tuple(
        Action(kind, first + i, chunk)
        for first in range(0, microbatches, group)
        for chunk in chunks
        for i in range(group)
    )


def _stages(stages: int) -> int:
    return stages


SCHEDULES = (
    Entry(
        name="interleaved",
        paper="Narayanan et al. 2021, arXiv 2104.04473, figure 4 (bottom)",
        order=interleaved,
        chunks=None,
        group=_stages,
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
