"""From a scenario with a `[sharing]` table to workers on a machine, each with its step."""

from collections.abc import Callable
from dataclasses import replace

from sim.collectives.group import GroupShape
from sim.config.errors import InputError
from sim.engine.machine import Machine
from sim.hardware import device as devices
from sim.hardware.cluster.topology import Topology
from sim.hardware.device import Device
from sim.model.reading import model_of
from sim.program.operations import Collective
from sim.scenario.scenario import SharingScenario
from sim.scenario.setup import load_document, load_stack, load_topology, machine
from sim.sharing import setup as sharing
from sim.sharing.learning.task import LearningTask
from sim.sharing.plan import Sharing
from sim.sharing.setup import KEEP_SPANS, SharingSetup
from sim.sharing.worker_step import free, worker_step
from sim.sharing.workload import Workload


def from_scenario(
    scenario: SharingScenario, *, task: LearningTask | None = None, keep_spans: int = KEEP_SPANS
) -> SharingSetup:
    """Load what a scenario names and put it on its machine. Raises `InputError`."""
    plan = scenario.sharing
    topology = load_topology(scenario)
    topology = topology.with_gpus(_gpus(scenario, topology))
    ranks, backend = _ranks_of_workers(plan, topology), scenario.backend
    slowed = machine(
        topology, None, scenario.straggler, scenario.name, backend=backend, ranks=ranks
    )
    steps = WorkerSteps(scenario, slowed)
    setup = sharing.assemble(
        plan, slowed, steps.of(), name=scenario.name, task=task, keep_spans=keep_spans
    )
    return replace(setup, workloads=steps.by_group(setup.workloads))


def _ranks_of_workers(plan: Sharing, topology: Topology) -> int:
    """GPUs that compute; 0 where the plan does not say, so that all do."""
    return (plan.workers or 0) * plan.gpus_of_worker(topology.gpus_per_node)


def _gpus(scenario: SharingScenario, topology: Topology) -> int:
    """Whole nodes where there are several, of which the last may not be used in full."""
    gpus = scenario.gpus or _ranks_of_workers(scenario.sharing, topology) or topology.gpus
    each = topology.gpus_per_node
    return gpus if gpus <= each else -(-gpus // each) * each


class WorkerSteps:
    """What a scenario's workers compute: a model on a device by a stack, or times measured."""

    def __init__(self, scenario: SharingScenario, machine: Machine) -> None:
        self.scenario, self.topology = scenario, machine.topology
        self._collective_time = _collective_time(scenario.sharing, machine)

    def of(self, device: Device | None = None, stack: str = "") -> Workload:
        """The step of a worker, by default on the cluster's device by the scenario's stack."""
        scenario, plan = self.scenario, self.scenario.sharing
        if plan.times is not None:
            width = 4.0 if plan.precision in ("fp32", "tf32") else 2.0
            return Workload.measured(plan.times, width=width, batch=plan.batch)
        if not scenario.model:
            remedy = 'set model = "resnet50", or give [sharing.times]'
            raise InputError(scenario.name, "does not say what the workers compute", remedy)
        step = worker_step(
            model_of(*load_document(scenario, "model", "models", scenario.model)),
            plan.batch,
            plan,
            load_stack(scenario, stack or scenario.stack),
            device or self.topology.device,
            self._collective_time,
        )
        return replace(step, batch=plan.batch * plan.own_gpus(self.topology.gpus_per_node))

    def by_group(self, workloads: tuple[Workload, ...]) -> tuple[Workload, ...]:
        """Every worker's step; groups on another device or stack have another."""
        steps, scenario = list(workloads), self.scenario
        for number, group in enumerate(scenario.sharing.group):
            if not (group.device or group.stack):
                continue
            where = f"{scenario.name}, sharing.group {number + 1}"
            if scenario.sharing.times is not None:
                what = "[sharing.times] were not measured on another device or stack"
                raise InputError(where, what, "give slowdown = 2.0 or the like")
            usual = self.topology.device
            device = devices.load(group.device, where=where) if group.device else usual
            step = replace(self.of(device, group.stack), memory=device.memory_bandwidth)
            for rank in group.ranks:
                steps[rank] = step
        return tuple(steps)


def _collective_time(plan: Sharing, machine: Machine) -> Callable[[Collective], float]:
    """How long a collective inside the passes takes, on an idle network."""
    topology = machine.topology
    if not plan.in_step or topology.gpus == 1:
        return free
    shape = GroupShape.of(topology.gpus, topology.gpus_per_node)

    def seconds(call: Collective) -> float:
        asked = machine.call(call.kind, call.bytes, shape)
        return asked.duration(machine.backend.call_cost(asked))

    return seconds
