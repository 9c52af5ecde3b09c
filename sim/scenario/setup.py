"""From a scenario's names to objects: the job to run and the machine to run it on."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from sim.collectives.libraries import backend as backends
from sim.config import catalog, limit, reads
from sim.config.checked import altered
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.engine.machine import Machine
from sim.hardware import stack as stacks
from sim.hardware.cluster import topology as topologies
from sim.hardware.cluster.topology import Topology
from sim.model import reading
from sim.model.kinds import check_layers
from sim.model.model import Model
from sim.parallel import schedule as schedules
from sim.parallel.chunks import chunks_of
from sim.parallel.job import Job, known_of
from sim.parallel.mesh import axes
from sim.parallel.plan import Plan, with_checkpoints
from sim.parallel.resolved import resolved
from sim.parallel.step import training_step
from sim.program.program import Program
from sim.scenario.fitting import check_job, check_sizes
from sim.scenario.scenario import BaseScenario, Scenario, Straggler, name_of, plan_columns
from sim.scenario.settings import changed, flat

if TYPE_CHECKING:
    from sim.parallel.loader import Loader

_OF_PASS = 3e-4  # s of one core for each pass that is simulated on the clock


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSetup:
    """A job that a plan lays out and the machine that it runs on, checked. `model` is the model's
    name in the scenario; `change` are the values that the scenario changes in its named files."""

    kind: ClassVar[str] = "sim.simulate"

    name: str
    job: Job
    machine: Machine
    model: str = ""
    change: Mapping[str, Any] = field(default_factory=dict)

    @property
    def program(self) -> Program:
        """The work of every rank in a step; equal jobs share it."""
        return _program(self.job)

    @property
    def columns(self) -> dict[str, Any]:
        """The number of GPUs in use, the plan's keys, and the schedule that runs."""
        plan, gpus = self.job.plan, self.machine.topology.gpus
        return {"gpus": gpus, **plan_columns(plan), "pipeline": plan.pipeline}

    def replanned(self, plan: Plan, stack: stacks.Stack | None = None) -> "PlanSetup":
        """Return the job with another plan, or by another stack, on the same machine, slow ranks
        included. Raises `InputError` if the plan cannot run."""
        job = self.job
        other = assemble(
            self.name,
            model=job.model,
            stack=stack or job.stack,
            topology=self.machine.topology,
            plan=plan,
            loader=job.loading.loader if job.loading else None,
        )
        return replace(other, machine=self.machine)

    def same_as(self, other: "PlanSetup") -> bool:
        """Whether two setups have equal jobs and machines, whatever their names are."""
        jobs = (
            replace(setup.job, model=setup.job.model.changed(name="")) for setup in (self, other)
        )
        return self.machine == other.machine and next(jobs) == next(jobs)


def from_scenario(scenario: Scenario) -> PlanSetup:
    """Load the files that a scenario names and apply its changes. Raises `InputError`."""
    topology, plan = load_topology(scenario), scenario.plan
    gpus = scenario.gpus or (plan.degree(axes()) if plan.dp else topology.gpus)
    setup = assemble(
        scenario.name,
        model=load_model(scenario),
        stack=load_stack(scenario, scenario.stack),
        topology=topology.with_gpus(gpus),
        plan=plan,
        stragglers=scenario.straggler,
        loader=scenario.loader,
    )
    return replace(setup, model=name_of(scenario.model), change=dict(flat(scenario.change)))


def assemble(
    name: str,
    *,
    model: Model,
    stack: stacks.Stack,
    topology: Topology,
    plan: Plan,
    stragglers: Iterable[Straggler] = (),
    loader: "Loader | None" = None,
) -> PlanSetup:
    """Fit a plan to the machine and the model. Raises `InputError` if it does not fit."""
    job = _job(name, model, stack, topology, plan, loader)
    known = known_of(job.model, job.stack, job.device, job.device.measured)
    job = job if job.known is known else replace(job, known=known)
    on = machine(topology, job.plan, tuple(stragglers), name)
    return PlanSetup(name=name, job=ordered(job, on), machine=on)


def ordered(job: Job, machine: Machine) -> Job:
    """Return the job with the order of passes that its schedule searches for, if it searches."""
    search = None if job.plan.pp == 1 else schedules.searched(job.plan.pipeline)
    if search is None:
        return job
    from sim.engine.ordering import searched

    return searched(job, machine, search)


@reads.kept(4, key=lambda job: (job, job.device.measured))
def _program(job: Job) -> Program:
    return training_step(job)


def _asked(name: str, *parts: Any) -> object:
    model, stack, topology, plan, loader = parts
    device = topology.device
    cluster = device, device.measured, topology.checks, topology.form
    return name, model, model.numerics, stack, plan, loader, cluster, limit.allowed()


@reads.kept(4, key=_asked)
def _job(
    name: str,
    model: Model,
    stack: stacks.Stack,
    topology: Topology,
    plan: Plan,
    loader: "Loader | None",
) -> Job:
    """A job that a plan lays out on a cluster; the rates of links between devices do not matter."""
    where = f"{name}, plan"
    check_layers(model)
    plan = resolved(plan, topology.gpus, where=where)
    passes = 2 * plan.pp * plan.interleave * plan.microbatches
    limit.refuse_long(where, f"{passes:,} passes", passes * _OF_PASS)
    stack = stack.running(plan.precision, where=where).reducing(plan.grad_reduce_in_fp32)
    offload = with_checkpoints(plan.offload, stack.checkpointing, plan.recompute)
    plan = replace(plan, offload=offload)
    check_sizes(model, stack, topology, plan, where)
    if not stack.attention:
        try:
            model = model.unfused()
        except ValueError as error:
            raise InputError.of(where, error, "the stack has no fused attention: ") from None
    job = Job(
        model=model,
        plan=plan,
        stack=stack,
        device=topology.device,
        chunks=chunks_of(model, stack, plan, topology.device),
        checks=topology.checks,
        node=topology.gpus_per_node,
        loading=loader.on(topology, name) if loader else None,
        known=known_of(model, stack, topology.device, topology.device.measured),
    )
    check_job(job, topology, where)
    return job


def load_model(scenario: BaseScenario) -> Model:
    """Return the model of a scenario with its changes."""
    changes, where = scenario.changes("model"), f"{scenario.name}, model"
    if isinstance(scenario.model, str):
        return _model(scenario.model, changes, where)
    return reading.settled(altered(scenario.model, changes, where), changes)


def load_stack(scenario: BaseScenario, stack: str | stacks.Stack) -> stacks.Stack:
    """Return a stack with the changes of a scenario."""
    changes, where = scenario.changes("stack"), f"{scenario.name}, stack"
    return (
        _stack(stack, changes, where) if isinstance(stack, str) else altered(stack, changes, where)
    )


def _named(name: str, changes: Mapping[str, Any], where: str) -> object:
    return name, repr(changes), where


@reads.kept(8, key=_named)
def _model(name: str, changes: Mapping[str, Any], where: str) -> Model:
    """Return a model of a file with changes; `where` names the scenario in errors."""
    path = catalog.find("models", name, where=where)
    place = catalog.place(path, changed=bool(changes))
    model = reading.model_of(changed(reading.document(path), changes, place), place)
    return reading.settled(model, changes)


@reads.kept(8, key=_named)
def _stack(name: str, changes: Mapping[str, Any], where: str) -> stacks.Stack:
    """Return a stack of a file with changes."""
    path = catalog.find("topologies/stacks", name, where=where)
    place = catalog.place(path, changed=bool(changes))
    document = changed(catalog.document("topologies/stacks", path), changes, place)
    return catalog.validate(document, stacks.Stack, place)


def load_topology(scenario: BaseScenario) -> Topology:
    """The cluster of a scenario, with as many GPUs as its own file or `topology.gpus` says."""
    overrides, where = scenario.changes("topology"), f"{scenario.name}, topology"
    overrides |= {f"device.{key}": value for key, value in scenario.changes("device").items()}
    if not isinstance(scenario.topology, str):
        return altered(scenario.topology, overrides, where)
    return topologies.load(scenario.topology, overrides, where=where)


def machine(
    topology: Topology,
    plan: Plan | None,
    stragglers: Sequence[Straggler],
    name: str,
    *,
    backend: str = "",
    ranks: int = 0,
) -> Machine:
    """Return a topology with a collective library, and with slow ranks and links.

    A job without a `plan` has no stages. The library is the topology's unless a `backend` is given.
    All of the topology's GPUs are in use unless `ranks` says how many are. Raises `InputError`.
    """
    slowdown: dict[int, float] = {}
    if stragglers:
        from sim.scenario.stragglers import slowed

        topology, slowdown = slowed(topology, plan, stragglers, name, ranks or topology.gpus)
    where = f"topology {topology.name}, backend"
    return Machine(topology, backends.load(backend or topology.backend, where=where), slowdown)
