"""How does a scenario with a `[sharing]` table become workers, each with the work of a step?"""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

from sim.collectives.schedule import GroupShape
from sim.config.errors import InputError
from sim.engine.machine import Machine
from sim.hardware import device as devices
from sim.hardware.cluster.topology import Topology
from sim.hardware.device import Device
from sim.jobs.sharing import setup as sharing
from sim.jobs.sharing.learning.tasks import Task
from sim.jobs.sharing.plan import FP32, Sharing
from sim.jobs.sharing.scenario import SharingScenario
from sim.jobs.sharing.server_placement import whole_nodes
from sim.jobs.sharing.setup import KEEP_SPANS, SharingSetup
from sim.jobs.sharing.worker_step import free, group_step, worker_step
from sim.jobs.sharing.workload import Workload
from sim.model.counts import parameters
from sim.model.model import Model
from sim.parallel.mesh import axes
from sim.parallel.plan import Plan
from sim.program.operations import Collective
from sim.scenario.scenario import name_of
from sim.scenario.settings import flat
from sim.scenario.setup import assemble, load_model, load_stack, load_topology, machine
from sim.uncertainty.evidence import work_of


def from_scenario(
    scenario: SharingScenario, *, task: Task | None = None, keep_spans: int = KEEP_SPANS
) -> SharingSetup:
    """Load the files that a scenario names and put the job on its machine. Raises `InputError`."""
    scenario = replace(scenario, sharing=_laid_out(scenario))
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
    workloads, model = steps.by_group(setup.workloads), steps.model if scenario.model else None
    return replace(
        setup,
        workloads=workloads,
        model=name_of(scenario.model),
        stack=name_of(scenario.stack),
        software=load_stack(scenario, scenario.stack).name,
        work=work_of(model),
        change=dict(flat(scenario.change)),
        tokens=model.tokens if model else 1,
        parameters=float(parameters(model)) if model else workloads[0].parameters,
        notes=model.notes if model else (),
    )


def _laid_out(scenario: SharingScenario) -> Sharing:
    """The `[sharing]` table, with the size of a worker, its batch, precision and optimizer taken
    from `[plan]` if there is one.

    Raises `InputError` if both tables state a value and the values differ.
    """
    plan, sharing = scenario.plan, scenario.sharing
    if plan is None:
        return sharing
    where = f"{scenario.name}, sharing"
    if sharing.times is not None or not scenario.model:
        fault = "[plan] lays out a model, but [sharing.times] or no model says what workers compute"
        raise InputError(where, fault, "give model, and leave [sharing.times] out")
    known = {"batch": "global_batch", "precision": "precision", "optimizer": "optimizer"}
    for key, theirs in known.items():
        usual = Sharing.__dataclass_fields__[key].default
        if getattr(sharing, key) not in (usual, getattr(plan, theirs)):
            fault = f"{key} is set beside [plan], which states it as {theirs}"
            raise InputError(where, fault, f"leave {key} out")
    if sharing.in_step:
        fault = f'method = "{sharing.method}" beside [plan]: groups share weights, not passes'
        raise InputError(where, fault, 'set method = "local_sgd" with period = 1')
    size = plan.degree(axes())
    if plan.dp is None and isinstance(sharing.worker, int):
        size = sharing.worker
    elif sharing.worker not in ("gpu", size):
        fault = f"worker = {sharing.worker!r}, but [plan] lays out {size} GPUs"
        raise InputError(where, fault, "leave worker out")
    return replace(
        sharing,
        worker=size,
        batch=plan.global_batch,
        precision=plan.precision,
        optimizer=plan.optimizer,
    )


def _ranks_of_workers(plan: Sharing, topology: Topology) -> int:
    """The number of GPUs that compute; 0 if the plan does not state it, so all GPUs compute."""
    return (plan.workers or 0) * plan.gpus_of_worker(topology.gpus_per_node)


def _gpus(scenario: SharingScenario, topology: Topology) -> int:
    """The number of GPUs of the machine: a part of one node, or several whole nodes."""
    needed = _ranks_of_workers(scenario.sharing, topology)
    if scenario.gpus and scenario.gpus < needed:
        fault = f"gpus = {scenario.gpus}, but the workers compute on {needed} GPUs"
        raise InputError(scenario.name, fault, "set fewer sharing.workers, or leave gpus out")
    return whole_nodes(scenario.gpus or needed or topology.gpus, topology.gpus_per_node)


class WorkerSteps:
    """The work of a scenario's workers: a model on a device by a stack, or measured times."""

    def __init__(self, scenario: SharingScenario, machine: Machine) -> None:
        self.scenario, self.topology = scenario, machine.topology
        self._collective_time = _collective_time(scenario.sharing, machine)

    @cached_property
    def model(self) -> Model:
        """The model that the scenario names."""
        return load_model(self.scenario)

    def of(self, device: Device | None = None, stack: str = "") -> Workload:
        """The step of a worker, by default on the cluster's device and by the scenario's stack."""
        plan, topology = self.scenario.sharing, self.topology
        boards = _ranks_of_workers(plan, topology) or topology.gpus
        step = self._step(device or self._among(topology.device, boards), stack)
        return replace(step, width=FP32) if plan.sends_fp32 else step

    def _among(self, device: Device, gpus: int) -> Device:
        """The board (one specimen of `device`) that sets a worker's pace. If workers wait for one
        another, it is the slowest of `gpus` boards, otherwise the slowest of the worker's own
        boards."""
        plan = self.scenario.sharing
        return device.among(gpus if plan.waits else plan.own_gpus(self.topology.gpus_per_node))

    def _step(self, device: Device, stack: str) -> Workload:
        scenario, plan = self.scenario, self.scenario.sharing
        if plan.times is not None:
            width = 4.0 if plan.precision in ("fp32", "tf32") else 2.0
            return Workload.measured(plan.times, width=width, batch=plan.batch)
        if not scenario.model:
            remedy = 'set model = "resnet50", or give [sharing.times]'
            raise InputError(scenario.name, "does not say what the workers compute", remedy)
        if scenario.plan is not None:
            return self._of_group(scenario.plan, device, stack)
        step = worker_step(
            self.model,
            plan.batch,
            plan,
            load_stack(scenario, stack or scenario.stack),
            device,
            self._collective_time,
        )
        return replace(step, batch=plan.batch * plan.own_gpus(self.topology.gpus_per_node))

    def _of_group(self, plan: Plan, device: Device, stack: str) -> Workload:
        """The step of a worker that a plan lays out, by itself on a machine of its size."""
        scenario = self.scenario
        gpus = scenario.sharing.own_gpus(self.topology.gpus_per_node)
        setup = assemble(
            f"{scenario.name}, a worker",
            model=self.model,
            stack=load_stack(scenario, stack or scenario.stack),
            topology=replace(self.topology.with_gpus(gpus), device=device),
            plan=plan,
        )
        return group_step(setup.job, setup.machine)

    def by_group(self, workloads: tuple[Workload, ...]) -> tuple[Workload, ...]:
        """Every worker's step, recomputed for groups on another device or stack."""
        steps, scenario = list(workloads), self.scenario
        for number, group in enumerate(scenario.sharing.group):
            if not (group.device or group.stack):
                continue
            where = f"{scenario.name}, sharing.group {number + 1}"
            if scenario.sharing.times is not None:
                fault = "[sharing.times] were not measured on another device or stack"
                raise InputError(where, fault, "give a slowdown, such as slowdown = 2.0")
            device, gpus = self.topology.device, self.topology.gpus
            if group.device:
                device = devices.load(group.device, where=where)
                gpus = len(group.ranks) * scenario.sharing.own_gpus(self.topology.gpus_per_node)
            device = self._among(device, gpus)
            step = replace(self.of(device, group.stack), memory=device.memory_bandwidth)
            for rank in group.ranks:
                steps[rank] = step
        return tuple(steps)


def _collective_time(plan: Sharing, machine: Machine) -> Callable[[Collective], float]:
    """Return the function that gives the seconds of a collective in a pass, on an idle network."""
    topology = machine.topology
    if not plan.in_step or topology.gpus == 1:
        return free
    shape = GroupShape.of(topology.gpus, topology.gpus_per_node)

    def seconds(call: Collective) -> float:
        asked = machine.call(call.kind, call.bytes, shape)
        return asked.duration(machine.backend.call_cost(asked))

    return seconds
