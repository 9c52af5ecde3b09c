"""Seconds of the training side: updates, and forward passes for log-probabilities.

Both are the ordinary simulation of the plan. A row holds some tokens of answers, packed one behind
another, and a query sees the keys of its own answer only. Answers of many lengths cost what equal
answers of sum(l^2)/sum(l) tokens cost: these have as many tokens and as many pairs of positions.
A forward pass is the program of a step with the forward actions of its schedule alone.
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
_PARTS = 8  # fillings of a row that are played
_EXACT = 4  # microbatches up to which each number is played; beyond, powers of two are


def even(lengths: NDArray[np.float64]) -> float:
    """Tokens of equal answers that cost what these cost: sum(l^2) / sum(l).

    >>> even(np.array([10.0, 10.0])), even(np.array([0.0, 20.0]))
    (10.0, 20.0)
    """
    return float((lengths**2.0).sum() / lengths.sum())


@dataclass(frozen=True, slots=True)
class Dealt:
    """The share of a rank in a batch: so many microbatches, each of rows of so many tokens."""

    microbatches: int
    tokens: float


def bins(lengths: Sequence[int], room: int) -> int:
    """Rows of `room` tokens that hold answers, the longest first, each in the fullest row that has
    room for it (best fit).

    >>> bins([3, 3, 2, 2], 5), bins([3, 3, 3], 5)
    (2, 3)
    """
    free: list[int] = []  # in order
    for length in sorted(lengths, reverse=True):
        place = bisect_left(free, length)
        left = free.pop(place) if place < len(free) else room
        insort(free, left - length)
    return len(free)


def balanced(lengths: Sequence[int], parts: int) -> list[list[int]]:
    """Answers in parts with equally many of them and about equally many tokens: of the longest
    that are left, a part each, the longest to the part with the fewest tokens. A part names its
    answers by number, in order.

    >>> balanced([9, 1, 5, 4, 3, 8], 2)
    [[0, 3, 4], [1, 2, 5]]
    """
    order = np.argsort(np.array(lengths), kind="stable")[::-1]
    loads, shares = np.zeros(parts), [list[int]() for _ in range(parts)]
    for first in range(0, len(order), parts):
        own = order[first : first + parts]
        for part, answer in zip(np.argsort(loads, kind="stable"), own, strict=False):
            loads[part] += lengths[answer]
            shares[part].append(int(answer))
    return [sorted(share) for share in shares]


@dataclass(frozen=True, kw_only=True, eq=False)
class Training:
    """A plan on its GPUs, for batches of answers.

    `row` are the most tokens of a row, `typical` the tokens of the answers of an update; a rank
    computes `plan.microbatch` rows at once. Raises `InputError` for a plan that does not fit.

    `deal` says how answers come to ranks. "rows": packed in rows, of which all ranks have equally
    many (padded to equal length in pipelines, as in NeMo RL). "answers": all that are taken at once
    are divided into `balanced` parts, one for each GPU; a rank takes the parts of its GPUs, and
    divides them among updates in their order (as in verl, trainer.balance_batch). Ranks wait for
    the rank with most tokens in an update. Transfers of one that is `alone` have their links to
    themselves, which is a quicker estimate.
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
        """Tokens of equal answers that cost what typical ones cost."""
        return max(1, round(even(np.array(self.typical))))

    @cached_property
    def replicas(self) -> int:
        """Ranks with rows of their own."""
        whole = self.plan.degree(name for name, axis in axes().items() if axis.divides != "batch")
        return self.topology.gpus // whole

    @cached_property
    def unit(self) -> int:
        """Microbatches come in multiples of this."""
        return self.plan.pp if self.plan.interleave > 1 else 1

    def updates(self, lengths: Sequence[int]) -> list[float]:
        """Seconds of the updates of the weights by answers of so many tokens."""
        return [self._seconds("update", dealt, self._step) for dealt in self.dealt(lengths)]

    def forward(self, lengths: Sequence[int]) -> float:
        """Seconds in which answers of so many tokens pass forward through the model."""
        (dealt,) = self.dealt(lengths, updates=1)
        return self._seconds("forward", dealt, self._passes)

    def dealt(self, lengths: Sequence[int], updates: int = 0) -> Iterator[Dealt]:
        """The share of the rank for which the others wait, of each of so many updates (0: as many
        as the plan's batch makes)."""
        updates = updates or max(1, len(lengths) // self.plan.global_batch)
        each = self.plan.microbatch * self.unit
        if self.deal == "rows":
            size = -(-len(lengths) // updates)
            for first in range(0, len(lengths), size):
                own = lengths[first : first + size]
                rows = bins(own, self.row)
                count = ceil(rows / (each * self.replicas)) * self.unit
                yield Dealt(count, float(self.row) if self.plan.pp > 1 else sum(own) / rows)
            return
        for most in self._most(lengths, updates):
            count = ceil(most / (each * self.row)) * self.unit
            yield Dealt(count, most / (count * self.plan.microbatch))

    def _most(self, lengths: Sequence[int], updates: int) -> list[int]:
        """Tokens of the rank with most of them, of each update."""
        parts = balanced(lengths, self.topology.gpus)
        group = len(parts) // self.replicas
        most = [0] * updates
        for first in range(0, len(parts), group):
            own = [lengths[answer] for part in parts[first : first + group] for answer in part]
            size = -(-len(own) // updates)
            for number in range(updates):
                tokens = sum(own[number * size : (number + 1) * size])
                most[number] = max(most[number], tokens)
        return [tokens for tokens in most if tokens]

    def _seconds(self, what: str, dealt: Dealt, play: Callable[[int, int], float]) -> float:
        """Seconds by the nearest numbers of microbatches and fillings of rows that are played, on
        the lines through them."""
        filling = min(dealt.tokens / self.row, 1.0) * _PARTS
        full, rest = int(filling), filling - int(filling)
        ends = [full, full + 1] if rest > 1e-9 else [full, full]
        low, high = (self._between(what, dealt.microbatches, part, play) for part in ends)
        return low + rest * (high - low)

    def _between(
        self, what: str, count: int, part: int, play: Callable[[int, int], float]
    ) -> float:
        if not part:
            return 0.0
        low, high = _around(count // self.unit)
        ends = [self._memo(what, number * self.unit, part, play) for number in (low, high)]
        return float(np.interp(count, (low * self.unit, high * self.unit), ends))

    def _memo(self, what: str, count: int, part: int, play: Callable[[int, int], float]) -> float:
        key = what, count, part
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
        ahead = tuple(tuple(a for a in own if a.kind == "F") for own in order.orders)
        passes = training_step(setup.job, Schedule(ahead, order.pieces, "forward"))
        return play(passes, setup.machine).passes_end

    def setup(self, count: int, part: int = _PARTS) -> PlanSetup:
        """The job whose ranks have so many microbatches, with rows filled to so many parts."""
        plan, tokens = self.plan, self.row * part // _PARTS
        divided = plan.size("cp") * plan.size("ulysses")
        pieces = max(1, round(tokens / self.answer))
        shape, microbatch = {"seq": _multiple(tokens, 2 * plan.tp * divided)}, plan.microbatch
        if pieces > 1 and divided > 1:  # sequences of their own, as rows of several are not divided
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
                global_batch=count * microbatch * max(self.replicas, 1),  # none is refused
            ),
            stragglers=self.stragglers,
        )

    @cached_property
    def memory(self) -> Memory:
        """The memory of the fullest GPU at the worst moment of a typical update."""
        dealt = next(self.dealt(self.typical))
        part = min(ceil(_PARTS * dealt.tokens / self.row), _PARTS)
        setup = self.setup(_around(dealt.microbatches // self.unit)[1] * self.unit, part)
        return fullest(memories(setup.job, setup.program))

    @property
    def room(self) -> float:
        """Bytes of a GPU that tensors may take."""
        return self.topology.device.usable_memory


def _around(count: int) -> tuple[int, int]:
    """Two numbers that are played, one at most and one at least so many.

    >>> _around(3), _around(5), _around(8)
    ((3, 3), (4, 8), (8, 8))
    """
    if count <= _EXACT:
        return count, count
    high = 1 << (count - 1).bit_length()
    return (high, high) if high == count else (high // 2, high)


def _multiple(tokens: int, of: int) -> int:
    """Tokens rounded to a multiple.

    >>> _multiple(1001, 16), _multiple(3, 16)
    (1008, 16)
    """
    return max(round(tokens / of), 1) * of
