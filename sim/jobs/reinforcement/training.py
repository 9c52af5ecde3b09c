"""Seconds of the training side: updates, and forward passes for log-probabilities.

Both come from the ordinary simulation of the plan. A row holds several answers, packed one after
the other, and a query sees only the keys of its own answer. Answers of lengths l cost as much as
equal answers of sum(l^2)/sum(l) tokens: in all, both have the same tokens and pairs of positions. A
forward pass is the program of a step with the forward actions of its schedule alone.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from functools import cached_property
from math import ceil
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sim.config.dataclass import dataclass
from sim.engine.fold import Folding
from sim.engine.play import play
from sim.engine.replay.play import FoldedMachine
from sim.engine.replay.play import play as replayed
from sim.hardware.cluster.topology import Topology
from sim.hardware.stack import Stack
from sim.model.model import Model
from sim.parallel.memory import Memory, fullest, memories
from sim.parallel.mesh import axes
from sim.parallel.plan import Plan
from sim.parallel.step import training_step
from sim.program.schedule import Schedule
from sim.scenario.scenario import Straggler
from sim.scenario.setup import PlanSetup, assemble

Deal = Literal["rows", "answers"]
_PARTS = 8  # rows are played with 1/8, 2/8 ... 8/8 of their tokens
_EXACT = 4  # each number of microbatches up to 4 is played; beyond, only powers of two


def even(lengths: NDArray[np.float64]) -> float:
    """The length of equal answers that cost as much as answers of `lengths`: sum(l^2) / sum(l).

    >>> even(np.array([10.0, 10.0])), even(np.array([0.0, 20.0]))
    (10.0, 20.0)
    """
    return float((lengths**2.0).sum() / lengths.sum())


@dataclass(frozen=True, slots=True)
class Dealt:
    """A rank's share of a batch: its `microbatches`, whose rows have `tokens` tokens each."""

    microbatches: int
    tokens: float


def bins(lengths: Sequence[int], room: int) -> int:
    """The number of rows of `room` tokens that hold the answers. The longest answers are placed
    first, each in the fullest row that has room for it (best fit).

    >>> bins([3, 3, 2, 2], 5), bins([3, 3, 3], 5)
    (2, 3)
    """
    free: list[int] = []  # tokens free in each row, ascending
    for length in sorted(lengths, reverse=True):
        place = bisect_left(free, length)
        left = free.pop(place) if place < len(free) else room
        insort(free, left - length)
    return len(free)


def balanced(lengths: Sequence[int], parts: int) -> list[list[int]]:
    """Divide answers into parts with equally many answers and about equally many tokens.

    In each turn the longest remaining answers are handed out, an answer to each part. The longest
    of these answers goes to the part with the fewest tokens. A part lists the numbers of its
    answers in order.

    >>> balanced([9, 1, 5, 4, 3, 8], 2)
    [[0, 3, 4], [1, 2, 5]]
    """
    order = np.argsort(np.array(lengths), kind="stable")[::-1]
    loads, shares = np.zeros(parts), [list[int]() for _ in range(parts)]
    for first in range(0, len(order), parts):
        longest = order[first : first + parts]
        for part, answer in zip(np.argsort(loads, kind="stable"), longest, strict=False):
            loads[part] += lengths[answer]
            shares[part].append(int(answer))
    return [sorted(share) for share in shares]


@dataclass(frozen=True, kw_only=True, eq=False)
class Training:
    """A plan on its GPUs, for batches of answers.

    A row has at most `row` tokens. `typical` has the tokens of each answer of an update. A rank
    computes `plan.microbatch` rows at once. Raises `InputError` for a plan that does not fit.

    `deal` says how answers come to ranks. With "rows" they are packed into rows, and all ranks have
    equally many rows (padded to equal length in pipelines, as in NeMo RL). With "answers",
    `balanced` divides the answers taken at once into parts, a part for each GPU. A rank takes the
    parts of its GPUs, and divides them among updates in their order (as in verl,
    trainer.balance_batch). In each update, ranks wait for the rank with most tokens. With `alone`,
    transfers do not share links, which is a quicker estimate.
    """

    name: str
    model: Model
    stack: Stack
    topology: Topology
    plan: Plan
    row: int
    typical: tuple[int, ...]
    deal: Deal = "rows"
    stragglers: tuple[Straggler, ...] = ()
    alone: bool = False
    _known: dict[tuple[str, int, int], float] = field(default_factory=dict, repr=False)

    @cached_property
    def answer(self) -> int:
        """The length of equal answers that cost as much as the typical answers."""
        return max(1, round(even(np.array(self.typical))))

    @cached_property
    def replicas(self) -> int:
        """The number of data-parallel ranks, which have rows of their own."""
        whole = self.plan.degree(name for name, axis in axes().items() if axis.divides != "batch")
        return self.topology.gpus // whole

    @cached_property
    def unit(self) -> int:
        """The number of microbatches is a multiple of this number."""
        return self.plan.pp if self.plan.interleave > 1 else 1

    def updates(self, lengths: Sequence[int]) -> list[float]:
        """Seconds of each update of the weights by answers of `lengths` tokens."""
        return [self._seconds("update", dealt, self._step) for dealt in self.dealt(lengths)]

    def forward(self, lengths: Sequence[int]) -> float:
        """Seconds of a forward pass over answers of `lengths` tokens."""
        (dealt,) = self.dealt(lengths, updates=1)
        return self._seconds("forward", dealt, self._passes)

    def dealt(self, lengths: Sequence[int], updates: int = 0) -> Iterator[Dealt]:
        """For each update, yield the share of the rank for which all other ranks wait. There are
        `updates` updates (0: as many as the plan's batch makes)."""
        updates = updates or max(1, len(lengths) // self.plan.global_batch)
        each = self.plan.microbatch * self.unit
        if self.deal == "rows":
            size = -(-len(lengths) // updates)
            for first in range(0, len(lengths), size):
                batch = lengths[first : first + size]
                rows = bins(batch, self.row)
                count = ceil(rows / (each * self.replicas)) * self.unit
                yield Dealt(count, float(self.row) if self.plan.pp > 1 else sum(batch) / rows)
            return
        for most in self._most(lengths, updates):
            count = ceil(most / (each * self.row)) * self.unit
            yield Dealt(count, most / (count * self.plan.microbatch))

    def _most(self, lengths: Sequence[int], updates: int) -> list[int]:
        """For each update, the tokens of the rank with the most tokens."""
        parts = balanced(lengths, self.topology.gpus)
        group = len(parts) // self.replicas
        most = [0] * updates
        for first in range(0, len(parts), group):
            counts = [lengths[answer] for part in parts[first : first + group] for answer in part]
            size = -(-len(counts) // updates)
            for number in range(updates):
                tokens = sum(counts[number * size : (number + 1) * size])
                most[number] = max(most[number], tokens)
        return [tokens for tokens in most if tokens]

    def _seconds(self, kind: str, dealt: Dealt, play: Callable[[int, int], float]) -> float:
        """Seconds of a share, interpolated linearly between the nearest numbers of microbatches and
        fillings of rows that are played."""
        filling = min(dealt.tokens / self.row, 1.0) * _PARTS
        full, rest = int(filling), filling - int(filling)
        ends = [full, full + 1] if rest > 1e-9 else [full, full]
        low, high = (self._between(kind, dealt.microbatches, part, play) for part in ends)
        return low + rest * (high - low)

    def _between(
        self, kind: str, count: int, part: int, play: Callable[[int, int], float]
    ) -> float:
        if not part:
            return 0.0
        low, high = _around(count // self.unit)
        ends = [self._memo(kind, number * self.unit, part, play) for number in (low, high)]
        return float(np.interp(count, (low * self.unit, high * self.unit), ends))

    def _memo(self, kind: str, count: int, part: int, play: Callable[[int, int], float]) -> float:
        key = kind, count, part
        if key not in self._known:
            self._known[key] = play(count, part)
        return self._known[key]

    def _step(self, count: int, part: int) -> float:
        setup = self.setup(count, part)
        program, machine = setup.program, setup.machine
        if self.alone and program.ends:
            estimate = FoldedMachine(Folding(program, machine)).estimate(program)
            if not estimate.grid.deadlocks:
                return float(replayed([estimate]).end[0])
        return play(program, machine).step_time

    def _passes(self, count: int, part: int) -> float:
        setup = self.setup(count, part)
        order = setup.job.order or setup.job.plan.passes()
        ahead = tuple(tuple(a for a in actions if a.kind == "F") for actions in order.orders)
        passes = training_step(setup.job, Schedule(ahead, order.pieces, "forward"))
        return play(passes, setup.machine).passes_end

    def setup(self, count: int, part: int = _PARTS) -> PlanSetup:
        """The job whose ranks have `count` microbatches, with rows filled to `part` eighths."""
        plan, tokens = self.plan, self.row * part // _PARTS
        divided = plan.size("cp") * plan.size("ulysses")
        pieces = max(1, round(tokens / self.answer))
        shape, microbatch = {"seq": _multiple(tokens, 2 * plan.tp * divided)}, plan.microbatch
        if pieces > 1 and divided > 1:  # play sequences: a row of several answers cannot be divided
            shape = {"seq": _multiple(tokens // pieces, 2 * plan.tp * divided)}
            microbatch *= pieces
        elif pieces > 1:
            shape["documents"] = self.answer
        return assemble(
            f"{self.name}, training",
            model=self.model.changed(**shape),
            stack=self.stack,
            topology=self.topology,
            plan=replace(
                plan,
                microbatch=microbatch,
                global_batch=count * microbatch * max(self.replicas, 1),  # 0 is refused later
            ),
            stragglers=self.stragglers,
        )

    @cached_property
    def memory(self) -> Memory:
        """The memory of the fullest GPU at the peak of a typical update."""
        dealt = next(self.dealt(self.typical))
        part = min(ceil(_PARTS * dealt.tokens / self.row), _PARTS)
        setup = self.setup(_around(dealt.microbatches // self.unit)[1] * self.unit, part)
        return fullest(memories(setup.job, setup.program))

    @property
    def room(self) -> float:
        """Bytes of a GPU that tensors may take."""
        return self.topology.device.usable_memory


def _around(count: int) -> tuple[int, int]:
    """The nearest numbers of microbatches that are played: at most and at least `count`.

    >>> _around(3), _around(5), _around(8)
    ((3, 3), (4, 8), (8, 8))
    """
    if count <= _EXACT:
        return count, count
    high = 1 << (count - 1).bit_length()
    return (high, high) if high == count else (high // 2, high)


def _multiple(tokens: int, of: int) -> int:
    """Tokens rounded to a positive multiple of `of`.

    >>> _multiple(1001, 16), _multiple(3, 16)
    (1008, 16)
    """
    return max(round(tokens / of), 1) * of
