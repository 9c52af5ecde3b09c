"""Schedules of whole backward passes that drain at the end of a step.

With v chunks on a stage, groups of microbatches go through chunk 0, then through chunk 1, and so
on. The bubble's share of a step on p equal stages with m microbatches is (Huang et al. 2019,
section 2.3; Narayanan et al. 2021, section 2.2, as a ratio to the ideal time: (p-1)/m;
Lamy-Poirier 2022, section 4.1)

    naive          (p-1) / p
    GPipe, 1F1B    (p-1) / (m + p-1)
    interleaved    (p-1) / (v m + p-1)
"""

from collections.abc import Iterable

from sim.parallel.schedule import Entry
from sim.program.schedule import Action, Kind, Order, Schedule, in_loops


def naive(stages: int, microbatches: int, chunks: int = 1) -> Schedule:
    """Return the order in which each microbatch goes forward and back before the next starts."""
    order = tuple(Action(kind, i) for i in range(microbatches) for kind in ("F", "B"))
    return Schedule((order,) * stages, in_loops(stages, chunks), "naive")


def gpipe(stages: int, microbatches: int, chunks: int = 1) -> Schedule:
    """All forward passes, then all backward passes.

    Backward passes go in the order of the microbatches, as in Narayanan et al. 2021, figure 3, and
    PyTorch; the first paper's figure reverses them, with the same time and memory.
    """
    order = tuple(Action(kind, i) for kind in ("F", "B") for i in range(microbatches))
    return Schedule((order,) * stages, in_loops(stages, chunks), "gpipe")


def one_f_one_b(stages: int, microbatches: int, chunks: int = 1) -> Schedule:
    """PipeDream-flush: stage s runs p-s-1 forwards, then one forward and one backward in turn.

    Never more than p-s microbatches are in flight on stage s (Megatron-LM,
    `forward_backward_pipelining_without_interleaving`).
    """
    forward: Order = tuple(Action("F", i) for i in range(microbatches))
    backward: Order = tuple(Action("B", i) for i in range(microbatches))
    orders = (alternate(forward, backward, stages - stage - 1) for stage in range(stages))
    return Schedule(tuple(orders), in_loops(stages, chunks), "1f1b")


def alternate(forward: Order, backward: Order, warmup: int) -> Order:
    """Return `warmup` forwards, then one forward and one backward in turn, then other backwards."""
    warmup = min(warmup, len(forward))
    steady = len(forward) - warmup
    turns = [*forward[warmup:], *backward[:steady]]
    turns[::2], turns[1::2] = forward[warmup:], backward[:steady]
    return (*forward[:warmup], *turns, *backward[steady:])


def _naive_bubble(stages: int, microbatches: int, chunks: int) -> float:
    return (stages - 1) / stages


def bubble(stages: int, microbatches: int, chunks: int) -> float:
    """Return the bubble's share (p-1) / (v m + p-1), with v = 1 for one chunk a stage."""
    return (stages - 1) / (chunks * microbatches + stages - 1)


def interleaved(stages: int, microbatches: int, chunks: int) -> Schedule:
    """Interleaved 1F1B: stage s starts with 2 (p-s-1) + (v-1) n forwards, in groups of n.

    Megatron-Core, `get_pp_rank_microbatches` and `get_schedule_table`. (Megatron-LM's first
    versions ran everything forward before anything backward if m = p; the bubble is the same.)
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
    """Return the smallest `microbatch_group_size_per_vp_stage` that Megatron-Core accepts: the
    number of stages, or more if the last group would have fewer microbatches than stages.

    PyTorch's rounds have the same size if it accepts the number (`ScheduleInterleaved1F1B`).

    >>> [group_size(4, microbatches) for microbatches in (8, 9, 10, 11)]
    [4, 5, 5, 6]
    """
    sizes = range(stages, max(microbatches, stages) + 1)
    return next(n for n in sizes if microbatches % n == 0 or microbatches % n >= stages)


def looped_bfs(stages: int, microbatches: int, chunks: int) -> Schedule:
    """Breadth first: all microbatches go through a chunk before any goes through the next chunk.

    Backward passes take the microbatches in reverse, as PyTorch's `ScheduleLoopedBFS` does.
    """
    forward = grouped("F", microbatches, range(chunks), group=microbatches)
    backward = grouped("B", microbatches, range(chunks), group=microbatches)[::-1]
    return Schedule((forward + backward,) * stages, in_loops(stages, chunks), "looped-bfs")


def grouped(kind: Kind, microbatches: int, chunks: Iterable[int], *, group: int) -> Order:
    """Return passes of groups of microbatches, each through the chunks in turn; the last group may
    be smaller."""
    chunks = tuple(chunks)
    return tuple(
        Action(kind, i, chunk)
        for first in range(0, microbatches, group)
        for chunk in chunks
        for i in range(first, min(first + group, microbatches))
    )


def as_many(stages: int) -> int:
    """Return the number of stages, as a size of a group or a least number of microbatches."""
    return stages


SCHEDULES = (
    Entry(
        name="naive",
        paper="Huang et al. 2019, arXiv 1811.06965, figure 2b",
        order=naive,
        bubble=_naive_bubble,
        usual=False,
    ),
    Entry(
        name="gpipe",
        paper="Huang et al. 2019, arXiv 1811.06965, figure 2c",
        order=gpipe,
        bubble=bubble,
    ),
    Entry(
        name="1f1b",
        paper="Narayanan et al. 2021, arXiv 2104.04473, figure 4 (top)",
        order=one_f_one_b,
        bubble=bubble,
    ),
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
