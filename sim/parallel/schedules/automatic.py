"""The zero-bubble paper's automatic schedules: an order for given times and a limit of memory.

Qi et al. 2023, arXiv 2401.10241, section 3.1: before its first input gradient each stage runs the
forward passes that fit into memory, and into the time to the last stage and back. Then forward
passes and input gradients alternate, and weight gradients fill the bubbles
(`sim.parallel.bubble_filling`). The paper tries a few variants and improves them by an integer
program. Here each stage's number of forward passes ahead is changed as long as the step shortens.

With one and two times 1F1B's memory these are the schedules ZB-1p and ZB-2p of the paper's tables.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import cycle, islice

from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.parallel.bubble_filling import Costs, Filled, filled
from sim.parallel.schedule import Entry
from sim.parallel.schedules.zero_bubble import zb_h1
from sim.program.schedule import Action, Order, Schedule, in_loops

Ahead = tuple[int, ...]  # forward passes of each stage before its first input gradient

_PATIENCE = (1.0, 0.5, 0.01)  # least waits that are filled, in multiples of a weight gradient
_SHORT = 4  # microbatches per stage in the steps on which orders are tried
_EFFORT = 400_000  # passes that are simulated for each patience, over all orders that are tried


def zb_auto(costs: Costs, microbatches: int) -> Schedule:
    """Return the best order found. Raises `InputError` if memory cannot hold one microbatch."""
    stages = len(costs.limits)
    room = [
        int(limit / kept[0] + 1e-6) for limit, kept in zip(costs.limits, costs.kept, strict=True)
    ]
    if min(room) < 1:
        fault = f"stage {room.index(0)} has no room for the activations of one microbatch"
        raise InputError("plan, schedule_memory", fault, "raise schedule_memory")
    count = min(microbatches, _SHORT * stages)
    found = [_improved(_Trial(costs, room, count, patience)) for patience in _PATIENCE]
    whole = (
        _Trial(costs, room, microbatches, patience).filled(ahead)
        for patience, ahead in zip(_PATIENCE, found, strict=True)
    )
    best = min(whole, key=lambda candidate: candidate.seconds(apart=costs.apart))
    return Schedule(best.orders, in_loops(stages, 1), "zb-auto")


@dataclass(frozen=True)
class _Trial:
    """Orders of `microbatches` microbatches; each stage has `room` for some of them at once."""

    costs: Costs
    room: Sequence[int]
    microbatches: int
    patience: float

    @property
    def stages(self) -> int:
        return len(self.room)

    def fitted(self, ahead: Sequence[int]) -> Ahead:
        """Return numbers of forward passes ahead that fit into memory. No stage has fewer than the
        next stage, or that stage would wait forever."""
        most = min(self.room[-1], self.microbatches)
        fewest, fitted = 1, list[int]()
        for count, room in zip(reversed(ahead), reversed(self.room), strict=True):
            most = min(room, self.microbatches)
            fewest = max(min(count, most), fewest)
            fitted.append(fewest)
        lowest = [min(self.room[: stage + 1]) for stage in range(self.stages)]
        return tuple(min(count, most) for count, most in zip(reversed(fitted), lowest, strict=True))

    def filled(self, ahead: Ahead) -> Filled:
        orders = [_taking_turns(count, self.microbatches) for count in ahead]
        pieces = in_loops(self.stages, 1)
        return filled(orders, pieces, self.costs, patience=self.patience)

    def seconds(self, ahead: Ahead) -> float:
        return self.filled(ahead).seconds(apart=self.costs.apart)

    def beginnings(self) -> Iterator[Ahead]:
        """Yield how many forward passes stages run ahead in ZB-H1, in ZB-H2 and in variants."""
        for times in (1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0):
            lines = (1 + round(times * (self.stages - 1 - s)) for s in range(self.stages))
            yield self.fitted(tuple(lines))


def _improved(trial: _Trial) -> Ahead:
    """Return the best beginning, changed stage by stage as long as the step shortens."""
    best = min(dict.fromkeys(trial.beginnings()), key=trial.seconds)
    shortest, since = trial.seconds(best), 0
    steps = cycle((stage, more) for stage in range(trial.stages) for more in (1, -1))
    for stage, more in islice(steps, _EFFORT // (3 * trial.microbatches * trial.stages)):
        changed = trial.fitted([count + more * (s == stage) for s, count in enumerate(best)])
        since += 1
        if changed != best and (seconds := trial.seconds(changed)) < shortest * (1 - 1e-9):
            best, shortest, since = changed, seconds, 0
        if since == 2 * trial.stages:
            break
    return best


def _taking_turns(ahead: int, microbatches: int) -> Order:
    forward, back = (partial(Action, kind) for kind in ("F", "I"))
    order = [forward(i) for i in range(ahead)]
    for i in range(microbatches):
        order.append(back(i))
        if ahead + i < microbatches:
            order.append(forward(ahead + i))
    return tuple(order)


SCHEDULES = (
    Entry(
        name="zb-auto",
        paper="Qi et al. 2023, arXiv 2401.10241, section 3.1",
        order=zb_h1,
        searched=zb_auto,
        splits_backward=True,
    ),
)
