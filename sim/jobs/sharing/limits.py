"""Estimates of time and memory for workers; too large jobs are refused before they begin.

Seconds are of the order of magnitude of one core.
"""

from collections.abc import Sequence
from math import inf

from sim.config import limit
from sim.config.errors import InputError
from sim.hardware.cluster.topology import Topology
from sim.jobs.sharing.learning.cost import cost_of
from sim.jobs.sharing.plan import Sharing
from sim.jobs.sharing.workload import Workload

_OF_CHANGE = 3e-5  # s of a link that gets another rate
_OF_WORKER = 1e4  # bytes


def refuse(plan: Sharing, workloads: Sequence[Workload], topology: Topology, where: str) -> None:
    """Raise `InputError` where a run of so many workers passes what is allowed."""
    workers, first = len(workloads), workloads[0]
    steps, tries = _steps(plan, first, where), _tries(plan, first, topology)
    cost, size = cost_of(plan.learning), _size(plan)
    asked = f"{workers * steps:,.0f} updates" + (
        f" of {cost.weights(size):,} weights" if size else ""
    )
    if tries > 2.0:
        asked += f", {1.0 / tries:.2g} of which come to an end,"
    limit.refuse_long(where, asked, effort(plan, workloads, topology, where))
    held = cost.memory(size, workers)
    limit.refuse_large(where, f"{workers:,} workers", workers * _OF_WORKER + held)
    for cause in plan.straggler:
        changes = steps * tries * first.seconds / cause.interval * len(cause.links)
        limit.refuse_long(
            f"{where}.straggler", f"{changes:,.0f} changes of links", changes * _OF_CHANGE
        )


def effort(plan: Sharing, workloads: Sequence[Workload], topology: Topology, where: str) -> float:
    """How long a run takes (s)."""
    workers, first = len(workloads), workloads[0]
    updates = workers * _steps(plan, first, where) * _tries(plan, first, topology)
    learning = cost_of(plan.learning).seconds(_size(plan), first.batch, updates)
    return updates * plan.update_seconds(workers, first) + learning


def _tries(plan: Sharing, step: Workload, topology: Topology) -> float:
    """How many times as many steps are begun as come to an end, with weights that come and an
    update that goes over a link of a worker's own."""
    sent = plan.compression.message(step.parameters, step.width, step.whole.shapes)
    link = topology.network.bandwidth if topology.network else inf
    return plan.tries(step.seconds, (step.bytes + sent) / link)


def _size(plan: Sharing) -> int:
    return plan.learning.size if plan.learning else 0


def _steps(plan: Sharing, step: Workload, where: str) -> float:
    """Of every worker, as if messages took no time."""
    if plan.until is None:
        return max(plan.steps, getattr(plan, "period", 1))  # of a whole round, where there are any
    if not step.seconds:
        fault = "until, but a step takes no time, so that no number of them is enough"
        raise InputError(where, fault, "give steps, or sharing.times.forward")
    return plan.until / step.seconds
