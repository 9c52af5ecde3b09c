"""Seconds of the training side: updates, and forward passes for log-probabilities.

Both are the ordinary simulation of the plan. A row holds so many tokens of answers, packed one
behind another, and a query sees the keys of its own answer only. Answers of many lengths cost what
equal answers of sum(l^2)/sum(l) tokens cost: these have as many tokens and as many pairs of
positions. A forward pass is the program of a step with the forward actions of its schedule alone.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil

import numpy as np

from sim.engine.play import play
from sim.hardware.cluster.topology import Topology
from sim.hardware.stack import Stack
from sim.jobs.reinforcement.laws import Floats
from sim.model.model import Model
from sim.parallel.memory import Memory, fullest, memories
from sim.parallel.mesh import axes
from sim.parallel.plan import Plan
from sim.parallel.step import training_step
from sim.program.schedule import Schedule
from sim.scenario.scenario import Straggler
from sim.scenario.setup import PlanSetup, assemble

_EXACT = 4  # microbatches up to which each number is played; beyond, powers of two are


def even(lengths: Floats) -> float:
    """Tokens of equal answers that cost what these cost: sum(l^2) / sum(l).

    >>> even(np.array([10.0, 10.0])), even(np.array([0.0, 20.0]))
    (10.0, 20.0)
    """
    return float((lengths**2).sum() / lengths.sum())


@dataclass(frozen=True, kw_only=True, eq=False)
class Training:
    """A plan on its GPUs, for batches of any number of tokens.

    `row` are the tokens of a packed row, `answer` those of equal answers in it (`even`); a rank
    computes `plan.microbatch` rows at once. Rows are taken to be full, but for the last, and dealt
    evenly to the ranks. Raises `InputError` for a plan that does not fit.
    """

    name: str
    model: Model
    stack: Stack
    topology: Topology
    plan: Plan
    row: int
    answer: int
    stragglers: tuple[Straggler, ...] = ()
    _known: dict[tuple[str, int], float] = field(default_factory=dict, repr=False)

    @cached_property
    def replicas(self) -> int:
        """Ranks with rows of their own."""
        whole = self.plan.degree(name for name, axis in axes().items() if axis.divides != "batch")
        return self.topology.gpus // whole

    @cached_property
    def unit(self) -> int:
        """Microbatches come in multiples of this."""
        return self.plan.pp if self.plan.interleave > 1 else 1

    def microbatches(self, tokens: float) -> int:
        """Microbatches of a rank that hold so many tokens of all ranks."""
        each = self.row * self.plan.microbatch * self.replicas * self.unit
        return max(1, ceil(tokens / each - 1e-9)) * self.unit

    def update(self, tokens: float) -> float:
        """Seconds of an update of the weights with so many tokens."""
        return self._seconds("update", self.microbatches(tokens), self._step)

    def forward(self, tokens: float) -> float:
        """Seconds in which so many tokens pass forward through the model."""
        return self._seconds("forward", self.microbatches(tokens), self._passes)

    def _seconds(self, what: str, count: int, play: Callable[[int], float]) -> float:
        """Seconds of so many microbatches, between two played numbers on the line through them."""
        low, high = _around(count // self.unit)
        ends = [self._memo(what, number * self.unit, play) for number in (low, high)]
        return float(np.interp(count, (low * self.unit, high * self.unit), ends))

    def _memo(self, what: str, count: int, play: Callable[[int], float]) -> float:
        if (what, count) not in self._known:
            self._known[what, count] = play(count)
        return self._known[what, count]

    def _step(self, count: int) -> float:
        setup = self.setup(count)
        return play(setup.program, setup.machine).step_time

    def _passes(self, count: int) -> float:
        setup = self.setup(count)
        order = setup.job.order or setup.job.plan.passes()
        ahead = tuple(tuple(a for a in own if a.kind == "F") for own in order.orders)
        passes = training_step(setup.job, Schedule(ahead, order.pieces, "forward"))
        return play(passes, setup.machine).passes_end

    def setup(self, count: int) -> PlanSetup:
        """The job whose ranks have so many microbatches."""
        batch = count * self.plan.microbatch * self.replicas
        shape = {"seq": self.row} | ({"documents": self.answer} if self.answer < self.row else {})
        return assemble(
            f"{self.name}, training",
            model=self.model.changed(**shape),
            stack=self.stack,
            topology=self.topology,
            plan=replace(self.plan, global_batch=batch),
            stragglers=self.stragglers,
        )

    @cached_property
    def memory(self) -> Memory:
        """The memory of the fullest GPU at the worst moment of an update."""
        setup = self.setup(max(self.unit, self.plan.pp))
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
