"""Fills waits in an order of forward passes (F) and input gradients (I) with weight gradients (W).

No other pass waits for a weight gradient, so it runs when it does least harm. It fills a long
enough wait of its stage for an input, or runs when memory is short (Qi et al. 2023, arXiv
2401.10241, section 3.1). A stage runs its oldest weight gradient first.
"""

from collections import deque
from collections.abc import Sequence

from sim.config.dataclass import dataclass
from sim.program.schedule import Action, Order, Places, Schedule

Rows = tuple[tuple[float, ...], ...]  # [stage][chunk]

_ROUNDING = 1e-9  # relative tolerance of times and bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Seconds of passes by stage and chunk, seconds of a message between stages, and bytes. A
    forward pass keeps `kept` bytes; after the input gradient, `held` bytes of them are left for the
    weight gradient. A stage may have at most `limits` bytes of both together. `apart` says that
    stages do not wait for one another at the end of a step (`Program.apart`)."""

    forward: Rows
    inputs: Rows
    weights: Rows
    kept: Rows
    held: Rows
    limits: tuple[float, ...]
    message: float = 0.0
    apart: bool = False


def units(stages: int, chunks: int, limit: int) -> Costs:
    """Return costs with F = I = W = 1, and memory for the chunks of `limit` microbatches.

    >>> units(2, 1, limit=2).weights
    ((1.0,), (1.0,))
    """
    ones = ((1.0,) * chunks,) * stages
    return Costs(
        forward=ones, inputs=ones, weights=ones, kept=ones, held=ones, limits=(limit,) * stages
    )


@dataclass(frozen=True, slots=True)
class Filled:
    """The order of each stage, and when it starts its first pass and ends its last pass (s)."""

    orders: tuple[Order, ...]
    starts: tuple[float, ...]
    ends: tuple[float, ...]

    def seconds(self, *, apart: bool) -> float:
        """Return the seconds of a step, which ends with the last stage. If stages end `apart`, a
        step takes the longest time of a stage, counted from the stage's own first pass."""
        starts = self.starts if apart else (0.0,) * len(self.starts)
        return max(end - start for start, end in zip(starts, self.ends, strict=True))


def filled(
    orders: Sequence[Order], pieces: Places, costs: Costs, *, patience: float = 1.0
) -> Filled:
    """Return these orders of F and I with weight gradients among them. A weight gradient fills a
    wait that is at least `patience` times as long as itself. Raises `ValueError` if memory does not
    suffice, or if the orders wait for each other in a circle."""
    rows = [_Row(stage, order, costs, patience) for stage, order in enumerate(orders)]
    schedule = Schedule(tuple(orders), pieces)
    done: dict[tuple[str, int, tuple[int, int]], float] = {}
    moved = True
    while moved:
        moved = False
        for row in rows:
            while row.left:
                kind, microbatch, chunk = row.left[0]
                source = schedule.source(row.stage, row.left[0])
                ready = 0.0
                if source is not None:
                    made = done.get((kind, microbatch, source))
                    if made is None:
                        break
                    ready = made + costs.message * (source[0] != row.stage)
                done[kind, microbatch, (row.stage, chunk)] = row.run(ready)
                moved = True
    if any(row.left for row in rows):
        raise ValueError("the orders wait for each other in a circle")
    for row in rows:
        row.catch_up()
    return Filled(
        tuple(tuple(row.order) for row in rows),
        tuple(row.start for row in rows),
        tuple(row.free for row in rows),
    )


class _Row:
    """A stage while its order is written."""

    def __init__(self, stage: int, order: Order, costs: Costs, patience: float) -> None:
        self.stage, self.costs, self.patience = stage, costs, patience
        self.left = deque(order)
        self.order: list[Action] = []
        self.start, self.free, self.bytes = -1.0, 0.0, 0.0
        self.pending: deque[Action] = deque()

    def run(self, ready: float) -> float:
        """Run the next pass, whose input arrives at `ready`, and return when the pass ends."""
        action = self.left[0]
        self._fill(ready)
        if action.kind == "F":
            self._make_room(self.costs.kept[self.stage][action.chunk])
        self.left.popleft()
        begin = max(self.free, ready)
        if self.start < 0.0:
            self.start = begin
        times = self.costs.forward if action.kind == "F" else self.costs.inputs
        self.free = begin + times[self.stage][action.chunk]
        self.order.append(action)
        kept, held = (rows[self.stage][action.chunk] for rows in (self.costs.kept, self.costs.held))
        if action.kind == "F":
            self.bytes += kept
        else:
            self.bytes += held - kept
            self.pending.append(action)
        return self.free

    def catch_up(self) -> None:
        """Run all weight gradients that are left."""
        while self.pending:
            self._weights()

    def _fill(self, ready: float) -> None:
        close = _ROUNDING * ready
        while self.pending and self.free + self.patience * self._next_weights() <= ready + close:
            if self.free >= ready:
                return
            self._weights()

    def _make_room(self, size: float) -> None:
        limit = self.costs.limits[self.stage] * (1.0 + _ROUNDING)
        while self.bytes + size > limit:
            if not self.pending:
                raise ValueError(f"stage {self.stage} has no room for another microbatch")
            self._weights()

    def _next_weights(self) -> float:
        return self.costs.weights[self.stage][self.pending[0].chunk]

    def _weights(self) -> None:
        _, microbatch, chunk = self.pending.popleft()
        self.free += self.costs.weights[self.stage][chunk]
        self.bytes -= self.costs.held[self.stage][chunk]
        self.order.append(Action("W", microbatch, chunk))
