"""A plan of shared updates on a machine: the places of workers and servers, and the workers'
computations."""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any, ClassVar

from sim.config.dataclass import dataclass
from sim.engine.live_cluster import Endpoint
from sim.engine.machine import Machine
from sim.jobs.sharing import limits
from sim.jobs.sharing.learning.task import LearningTask, NoTask
from sim.jobs.sharing.learning.tasks import Task, task_of
from sim.jobs.sharing.plan import Sharing
from sim.jobs.sharing.server_placement import reserved_gpus, server_shares
from sim.jobs.sharing.workload import Workload
from sim.kind import WithoutProgram
from sim.uncertainty.evidence import Campaign, Work

KEEP_SPANS = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingSetup(WithoutProgram):
    """Everything that a run of shared updates needs, checked.

    `servers` holds each host's share of the weights, `workloads` each worker's step; `keep_spans`
    is the number of spans kept for pictures. `model` and `stack` are the names in the scenario,
    `change` has its changed values, and `software` is the stack's own name. `tokens` are the tokens
    of a sample, `parameters` is the number of the model's parameters. `work` is the kind of
    training (`sim.uncertainty.evidence`), and `notes` are the model's notes.
    """

    kind: ClassVar[str] = "sim.jobs.sharing.kind"

    name: str
    plan: Sharing
    machine: Machine
    workers: tuple[Endpoint, ...]
    servers: Mapping[Endpoint, float]
    workloads: tuple[Workload, ...]
    task: LearningTask = field(default_factory=NoTask)
    keep_spans: int = KEEP_SPANS
    model: str = ""
    stack: str = ""
    software: str = ""
    work: Work = "other"
    change: Mapping[str, Any] = field(default_factory=dict)
    tokens: int = 1
    parameters: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def columns(self) -> dict[str, Any]:
        """No columns: the row of a sweep has only the scenario's own columns."""
        return {}

    @property
    def campaign(self) -> Campaign:
        """The kind of the workers' steps; it selects similar steps that were measured."""
        topology = self.machine.topology
        return Campaign(
            stack=self.software,
            device=topology.device.name,
            generation=topology.device.generation,
            topology=topology.name,
            precision=self.plan.precision,
            work=self.work,
        )

    @property
    def batch(self) -> float:
        """The number of samples whose gradients are averaged for one step of the weights."""
        return self.plan.averaged(len(self.workers)) * self.workloads[0].batch

    @property
    def is_healthy(self) -> bool:
        """Whether nothing is slow, nothing changes and nothing fails."""
        plan = self.plan
        constant = not (plan.straggler or plan.fault or plan.change) and plan.copies == 1
        equal = all(group.slowdown == 1.0 for group in plan.group)
        return constant and equal and self.machine.is_healthy

    @property
    def effort(self) -> float:
        """How long the simulation takes on one core (s), as an order of magnitude. A run in which
        something is slow is simulated twice."""
        topology, where = self.machine.topology, f"{self.name}, sharing"
        seconds = limits.effort(self.plan, self.workloads, topology, where)
        return seconds * (1 if self.is_healthy else 2)

    @property
    def healthy(self) -> "SharingSetup":
        """This setup without slowdowns, repeated computation and task; for its times only."""
        group = tuple(replace(group, slowdown=1.0) for group in self.plan.group)
        plan = replace(self.plan, straggler=(), fault=(), change=(), group=group, copies=1)
        machine = self.machine.healthy
        return replace(self, plan=plan, machine=machine, task=NoTask(), keep_spans=0)


def assemble(
    plan: Sharing,
    machine: Machine,
    workload: Workload | Sequence[Workload],
    *,
    name: str = "sharing",
    task: Task | None = None,
    keep_spans: int = KEEP_SPANS,
) -> SharingSetup:
    """Put workers and servers onto a machine, which grows by the nodes of dedicated servers.

    `workload` is the step of every worker, or a sequence with each worker's step. `task` replaces
    the plan's own task. Raises `InputError` where the plan does not fit.
    """
    where, topology = f"{name}, sharing", machine.topology
    each = plan.gpus_of_worker(topology.gpus_per_node)
    available = topology.gpus - reserved_gpus(plan, topology.gpus_per_node)
    count = plan.workers or max(1, available // each)
    workloads = (workload,) * count if isinstance(workload, Workload) else tuple(workload)
    limits.refuse(plan, workloads, topology, where)
    plan.check(count, -(-count * each // topology.gpus_per_node), where)
    plan.compression.check(workloads[0].whole.shapes, f"{where}.compression")
    own_gpus = plan.own_gpus(topology.gpus_per_node)
    workers = tuple(Endpoint(tuple(range(i * each, i * each + own_gpus))) for i in range(count))
    servers, gpus = server_shares(plan, workers, count * each, topology.gpus_per_node, where)
    if gpus > 1 and gpus != topology.gpus:
        machine = replace(machine, topology=topology.with_hosts(gpus).with_gpus(gpus))
    return SharingSetup(
        name=name,
        plan=plan,
        machine=machine,
        workers=workers,
        servers=servers,
        workloads=workloads,
        task=task_of(plan.learning, count, batch=plan.batch, seed=plan.seed, own=task),
        keep_spans=keep_spans,
    )
