"""Schedules of whole backward passes with one chunk a stage, which drain at the end of a step.

The bubble's share of a step on p equal stages with m microbatches (Huang et al. 2019, section 2.3;
Narayanan et al. 2021, section 2.2, as a ratio to the ideal time: (p-1)/m):

    naive          (p-1) / p
    GPipe, 1F1B    (p-1) / (m + p-1)
"""

from sim.parallel.schedule import Entry
from sim.program.actions import Action
from sim.program.schedule import Order, Schedule, in_loops


def naive(stages: int, microbatches: int, chunks: int = 1) -> Schedule:
    """A microbatch goes all the way forward and back before the next one starts."""
    order = tuple(Action(kind, i) for i in range(microbatches) for kind in ("F", "B"))
    return Schedule((order,) * stages, in_loops(stages, chunks), "naive")


def gpipe(stages: int, microbatches: int, chunks: int = 1) -> Schedule:
    """All forward passes, then all backward passes.

    Backward passes go in the order of the microbatches, as in Narayanan et al. 2021, figure 3, and
    PyTorch; the first paper's figure has them in reverse, which takes the same time and memory.
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
    """`warmup` forwards, one forward and one backward in turn, then the backwards left over."""
    warmup = min(warmup, len(forward))
    steady = len(forward) - warmup
    turns = [*forward[warmup:], *backward[:steady]]
    turns[::2], turns[1::2] = forward[warmup:], backward[:steady]
    return (*forward[:warmup], *turns, *backward[steady:])


def _naive_bubble(stages: int, microbatches: int, chunks: int) -> float:
    return (stages - 1) / stages


def bubble(stages: int, microbatches: int, chunks: int) -> float:
    """(p-1) / (v m + p-1), with v = 1 for one chunk a stage."""
    return (stages - 1) / (chunks * microbatches + stages - 1)


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
)
