"""Estimates of the simulation's time and memory; jobs that are too large are refused at once.

Estimated seconds are seconds of one core, correct to an order of magnitude.
"""

from collections.abc import Callable, Sequence
from math import inf

from sim.config import limit
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.hardware.cluster.topology import Topology
from sim.jobs.sharing.plan import Sharing
from sim.jobs.sharing.tables import Learning
from sim.jobs.sharing.workload import Workload

_OF_WEIGHT = 2e-8  # s for each weight of an update, for two dozen FLOPs and copies
_POINTS = 400  # the most points of a loss curve


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCost:
    """The cost of a task. `weights` gives the number of weights for a size. `sample` is the time
    for each weight and each sample of a batch (s). The loss is computed on `rows` rows of data;
    each row counts as an activation for every weight."""

    weights: Callable[[int], int]
    sample: float = 0.0
    rows: int = 0

    def seconds(self, size: int, batch: int, updates: float) -> float:
        """Seconds of `updates` updates, and of the losses on the way."""
        samples = updates * batch + min(updates, _POINTS) * self.rows
        return self.weights(size) * (updates * _OF_WEIGHT + samples * self.sample)

    def memory(self, size: int, workers: int) -> float:
        """Bytes of a task: each worker's weights and gradient, and the activations of the loss."""
        return 8.0 * self.weights(size) * (2 * workers + self.rows)


_ALPHABET = 76  # distinct characters of the text that the task `characters` learns

COSTS = {
    "none": TaskCost(weights=lambda size: 0),
    "quadratic": TaskCost(weights=lambda size: size),
    "logistic": TaskCost(weights=lambda size: size + 1, sample=3e-9, rows=2000),
    "perceptron": TaskCost(weights=lambda size: 4 * size + 1, sample=4e-9, rows=1000),
    "digits": TaskCost(weights=lambda size: 18 * size**2 + 92 * size + 10, sample=1.6e-9, rows=360),
    "residual": TaskCost(weights=lambda size: 74 * size**2 + 47 * size + 10, sample=5e-9, rows=360),
    "characters": TaskCost(
        weights=lambda size: 64 * size**2 + (9 * _ALPHABET + 8) * size + _ALPHABET, sample=3e-10
    ),
}


def cost_of(learning: Learning | None) -> TaskCost:
    """The cost of the task that a table names."""
    return COSTS[learning.task if learning else "none"]


_OF_CHANGE = 3e-5  # s for each change of a link's rate
_OF_WORKER = 1e4  # bytes that the simulator holds for each worker


def refuse(plan: Sharing, workloads: Sequence[Workload], topology: Topology, where: str) -> None:
    """Raise `InputError` if the simulation of a run would take too long or too much memory."""
    workers, first = len(workloads), workloads[0]
    steps, tries = _steps(plan, first, where), _tries(plan, first, topology)
    cost, size = cost_of(plan.learning), _size(plan)
    asked = f"{workers * steps:,.0f} updates" + (
        f" of {cost.weights(size):,} weights" if size else ""
    )
    if tries > 2.0:
        asked += f" (only {1.0 / tries:.2g} of them come to an end)"
    limit.refuse_long(where, asked, effort(plan, workloads, topology, where))
    held = cost.memory(size, workers)
    limit.refuse_large(where, f"{workers:,} workers", workers * _OF_WORKER + held)
    for cause in plan.straggler:
        changes = steps * tries * first.seconds / cause.interval * len(cause.links)
        limit.refuse_long(
            f"{where}.straggler", f"{changes:,.0f} changes of links", changes * _OF_CHANGE
        )


def effort(plan: Sharing, workloads: Sequence[Workload], topology: Topology, where: str) -> float:
    """How long the simulation of a run takes (s of one core)."""
    workers, first = len(workloads), workloads[0]
    updates = workers * _steps(plan, first, where) * _tries(plan, first, topology)
    learning = cost_of(plan.learning).seconds(_size(plan), first.batch, updates)
    return updates * plan.update_seconds(workers, first) + learning


def _tries(plan: Sharing, step: Workload, topology: Topology) -> float:
    """How many steps are begun for each step that is completed. In a step, the weights arrive and
    an update leaves over the worker's own link."""
    sent = plan.compression.message(step.parameters, step.width, step.whole.shapes)
    link = topology.network.bandwidth if topology.network else inf
    return plan.tries(step.seconds, (step.bytes + sent) / link)


def _size(plan: Sharing) -> int:
    return plan.learning.size if plan.learning else 0


def _steps(plan: Sharing, step: Workload, where: str) -> float:
    """Steps of each worker, as if messages took no time."""
    if plan.until is None:
        return max(plan.steps, plan.round_steps)
    if not step.seconds:
        fault = "until is set, but a step takes no time, so no number of steps is enough"
        raise InputError(where, fault, "give steps, or sharing.times.forward")
    return plan.until / step.seconds
