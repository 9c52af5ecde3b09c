"""Schedules that split the backward pass and fill the bubble with weight gradients.

Qi et al. 2023, arXiv 2401.10241 (zero bubble), as PyTorch runs them. With F = I = W the bubble of
the first is (p-1) F in a step of 3 v m F + (p-1) F on stages of v chunks, that of the second none
(section 6) as soon as the pipeline is full.
"""

from collections import Counter
from collections.abc import Iterator

from sim.parallel.schedule import Entry
from sim.parallel.schedules.interleaved import grouped
from sim.program.actions import Action, Kind, read
from sim.program.schedule import Order, Schedule, in_a_v, in_loops


def interleaved_zero_bubble(stages: int, microbatches: int, chunks: int) -> Schedule:
    """ZB-1P: stage s warms up with (p-s-1) + (v-1) p forwards and lags s weight gradients behind.

    PyTorch, `ScheduleInterleavedZeroBubble`; with one chunk a stage it is the paper's ZB-H1.
    """
    group = stages if chunks > 1 else 1
    forward = grouped("F", microbatches, range(chunks), group=group)
    backward = grouped("I", microbatches, range(chunks)[::-1], group=group)
    more = (chunks - 1) * stages
    orders = (_lagging(forward, backward, stages - s - 1 + more, s) for s in range(stages))
    return Schedule(tuple(orders), in_loops(stages, chunks), "interleaved-zero-bubble")


def _lagging(forward: Order, backward: Order, warmup: int, lag: int) -> Order:
    """Forwards ahead by `warmup`, weight gradients behind the input gradients by `lag`."""
    warmup = min(warmup, len(forward))
    order = list(forward[:warmup])
    weights = (Action("W", action.microbatch, action.chunk) for action in backward)
    for place, action in enumerate(backward):
        order += forward[warmup + place : warmup + place + 1]
        order.append(action)
        if place >= lag:
            order.append(next(weights))
    return (*order, *weights)


def zbv(stages: int, microbatches: int, chunks: int = 2) -> Schedule:
    """ZB-V: two chunks a stage on a V-shaped way, so that every stage has equal memory.

    PyTorch, `ScheduleZBVZeroBubble`.
    """
    orders = (tuple(_Zbv(stages, stage, microbatches).order()) for stage in range(stages))
    return Schedule(tuple(orders), in_a_v(stages), "zbv")


class _Zbv:
    """One stage's order: the microbatches of each kind and chunk are taken in turn."""

    def __init__(self, stages: int, stage: int, microbatches: int) -> None:
        self.stages, self.stage, self.microbatches = stages, stage, microbatches
        # Fewer microbatches than fill the pipeline are a full pipeline with gaps.
        self.full = max(2 * stages - 1, microbatches)
        self.done: Counter[tuple[Kind, int]] = Counter()

    def order(self) -> Iterator[Action]:
        for actions in (self._warm_up(), self._steady(), self._cool_down()):
            yield from (action for action in actions if action.microbatch < self.microbatches)

    def _next(self, asked: str) -> Iterator[Action]:
        """The next microbatch of each kind and chunk."""
        for kind, chunk in read(asked):
            number = self.done[kind, chunk]
            self.done[kind, chunk] = number + 1
            yield Action(kind, number, chunk)

    def _warm_up(self) -> Iterator[Action]:
        left = self.stages - self.stage
        yield from self._next("F0 " * (2 * left - 1))
        yield from self._next("F1 F0 " * self.stage)
        yield from self._next("F1 I1 W1 " * left)

    def _steady(self) -> Iterator[Action]:
        while self.done["F", 1] < self.done["F", 0] or self.done["F", 0] < self.full:
            yield from self._next("F0" if self.done["F", 0] < self.full else "")
            yield from self._next("I0 W0 F1 I1 W1")

    def _cool_down(self) -> Iterator[Action]:
        yield from self._next("I0 I1 " * self.stage)
        yield from self._next("I0 W0 " * (self.stages - self.stage))
        for chunk in (1, 0):
            yield from self._next(f"W{chunk} " * (self.done["I", chunk] - self.done["W", chunk]))


def _stages(stages: int) -> int:
    return stages


def _bubble(stages: int, microbatches: int, chunks: int) -> float:
    return (stages - 1) / (3 * chunks * microbatches + stages - 1)


SCHEDULES = (
    Entry(
        name="zero-bubble",
        paper="Qi et al. 2023, arXiv 2401.10241, figure 3 (top): ZB-H1",
        order=interleaved_zero_bubble,
        bubble=_bubble,
        splits_backward=True,
    ),
    Entry(
        name="interleaved-zero-bubble",
        paper="Qi et al. 2023, arXiv 2401.10241: ZB-1P; PyTorch ScheduleInterleavedZeroBubble",
        order=interleaved_zero_bubble,
        chunks=None,
        group=_stages,
        bubble=_bubble,
        splits_backward=True,
    ),
    Entry(
        name="zbv",
        paper="Qi et al. 2023, arXiv 2401.10241, section 6; PyTorch ScheduleZBVZeroBubble",
        order=zbv,
        chunks=2,
        splits_backward=True,
    ),
)
