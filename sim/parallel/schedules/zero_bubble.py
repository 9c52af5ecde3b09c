"""Schedules that split the backward pass and fill the bubble with weight gradients.

Qi et al. 2023, arXiv 2401.10241 (zero bubble), in PyTorch's orders if it has them. Let passes on p
stages take F, I and W. Between its first and its last pass the first stage waits for (p-1) (F+I-W)
in ZB-H1, for (p-1) (F+I-2W) in ZB-H2 (table 1), and not at all in ZB-V if F = I = W (section 6). If
a step ends on all stages at once, waits before a stage's first pass and after its last pass count
as well. With F = I = W each stage then waits for (p-1) F in all.
"""

from collections import Counter
from collections.abc import Iterator

from sim.parallel.schedule import Entry
from sim.parallel.schedules.flush import as_many, grouped
from sim.program.schedule import Action, Kind, Order, Schedule, in_loops, read
from sim.program.v_places import in_a_v


def zb_h1(stages: int, microbatches: int, chunks: int = 1) -> Schedule:
    """Stage s warms up with p-s-1 forwards and lags s weight gradients behind: p microbatches are
    in flight on every stage."""
    return _handcrafted(stages, microbatches, 1, "zb-h1")


def zb_h2(stages: int, microbatches: int, chunks: int = 1) -> Schedule:
    """ZB-H1 with twice its warm-up forwards and twice its lag: 2p-1 microbatches are in flight."""
    return _handcrafted(stages, microbatches, 2, "zb-h2")


def _handcrafted(stages: int, microbatches: int, times: int, name: str) -> Schedule:
    forward = grouped("F", microbatches, [0], group=microbatches)
    backward = grouped("I", microbatches, [0], group=microbatches)
    orders = (
        _lagging(forward, backward, times * (stages - s - 1), times * s) for s in range(stages)
    )
    return Schedule(tuple(orders), in_loops(stages, 1), name)


def interleaved_zero_bubble(stages: int, microbatches: int, chunks: int) -> Schedule:
    """Stage s warms up with (p-s-1) + (v-1) p forwards and lags s weight gradients behind.

    PyTorch, `ScheduleInterleavedZeroBubble`.
    """
    forward = grouped("F", microbatches, range(chunks), group=stages)
    backward = grouped("I", microbatches, range(chunks)[::-1], group=stages)
    more = (chunks - 1) * stages
    orders = (_lagging(forward, backward, stages - s - 1 + more, s) for s in range(stages))
    return Schedule(tuple(orders), in_loops(stages, chunks), "interleaved-zero-bubble")


def _lagging(forward: Order, backward: Order, warmup: int, lag: int) -> Order:
    """Return an order of `warmup` forwards, then a forward before each input gradient, with weight
    gradients `lag` input gradients behind."""
    warmup = min(warmup, len(forward))
    order = list(forward[:warmup])
    weights = (Action("W", action.microbatch, action.chunk) for action in backward)
    for place, action in enumerate(backward):
        order += forward[warmup + place : warmup + place + 1]
        order.append(action)
        if place >= lag:
            order.append(next(weights))
    return (*order, *weights)


def zb_v(stages: int, microbatches: int, chunks: int = 2) -> Schedule:
    """ZB-V: two chunks a stage on a V-shaped path, so every stage needs the same memory. PyTorch,
    `ScheduleZBVZeroBubble`."""
    orders = (tuple(_Zbv(stages, stage, microbatches).order()) for stage in range(stages))
    return Schedule(tuple(orders), in_a_v(stages), "zb-v")


class _Zbv:
    """The order of a stage: actions of a kind on a chunk take microbatches 0, 1, 2 ... in turn."""

    def __init__(self, stages: int, stage: int, microbatches: int) -> None:
        self.stages, self.stage, self.microbatches = stages, stage, microbatches
        # Too few microbatches take the order of a full pipeline, without the missing microbatches.
        self.full = max(2 * stages - 1, microbatches)
        self.done: Counter[tuple[Kind, int]] = Counter()

    def order(self) -> Iterator[Action]:
        for actions in (self._warm_up(), self._steady(), self._cool_down()):
            yield from (action for action in actions if action.microbatch < self.microbatches)

    def _next(self, asked: str) -> Iterator[Action]:
        """Yield the next microbatch of each kind and chunk in `asked`, such as "I0 W0"."""
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


def bubble(stages: int, microbatches: int, chunks: int) -> float:
    """Return the share of a bubble of (p-1) F beside passes of 3 v m F, if F = I = W of a chunk."""
    return (stages - 1) / (3 * chunks * microbatches + stages - 1)


def _filling(stages: int) -> int:
    return 2 * stages - 1


SCHEDULES = (
    Entry(
        name="zb-h1",
        paper="Qi et al. 2023, arXiv 2401.10241, figure 3 (top)",
        order=zb_h1,
        bubble=bubble,
        splits_backward=True,
    ),
    Entry(
        name="zb-h2",
        paper="Qi et al. 2023, arXiv 2401.10241, figure 3 (bottom)",
        order=zb_h2,
        least=_filling,
        bubble=bubble,
        splits_backward=True,
    ),
    Entry(
        name="interleaved-zero-bubble",
        paper="Qi et al. 2023, arXiv 2401.10241; PyTorch ScheduleInterleavedZeroBubble",
        order=interleaved_zero_bubble,
        chunks=None,
        group=as_many,
        bubble=bubble,
        splits_backward=True,
    ),
    Entry(
        name="zb-v",
        paper="Qi et al. 2023, arXiv 2401.10241, section 6; PyTorch ScheduleZBVZeroBubble",
        order=zb_v,
        chunks=2,
        splits_backward=True,
    ),
)
