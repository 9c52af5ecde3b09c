"""From a scenario's names to things: the job to run and the machine to run it on."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from sim.collectives.libraries import backend as backends
from sim.config import catalog
from sim.config.errors import InputError
from sim.engine.machine import Machine
from sim.hardware import stack as stacks
from sim.hardware.cluster import topology as topologies
from sim.hardware.cluster.topology import Topology
from sim.model import transformer as models
from sim.model.transformer import Transformer
from sim.parallel.balance import Balance, Chunk, split
from sim.parallel.footprint import footprints
from sim.parallel.mesh import Mesh
from sim.parallel.plan import Plan
from sim.parallel.work import Job
from sim.scenario.scenario import Scenario, SharingScenario, Straggler, changed

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Everything that a simulation needs, checked."""

    name: str
    job: Job
    machine: Machine


def from_scenario(scenario: Scenario) -> Setup:
    """Load what a scenario names and apply its changes. Raises `InputError`."""
    if isinstance(scenario, SharingScenario):
        what = "shares updates in a way of its own ([sharing]), which has no step to ask for"
        raise InputError(scenario.name, what, "use `sim run`, or a scenario without [sharing]")
    model = _loaded(scenario, "model", "models", models.Transformer)
    stack = _loaded(scenario, "stack", "topologies/stacks", stacks.Stack)
    topology = _topology(scenario)
    return assemble(
        scenario.name,
        model=model,
        stack=stack,
        topology=topology,
        plan=scenario.plan,
        stragglers=scenario.straggler,
    )


def assemble(
    name: str,
    *,
    model: Transformer,
    stack: stacks.Stack,
    topology: Topology,
    plan: Plan,
    stragglers: Iterable[Straggler] = (),
) -> Setup:
    """Fit a plan to the machine and the model. Raises `InputError` where it does not."""
    where = f"{name}, plan"
    plan = plan.resolved(topology.gpus, where=where)
    if plan.pp > model.layers:
        raise InputError(
            where, f"pp = {plan.pp} stages for {model.layers} layers", f"set pp <= {model.layers}"
        )
    if not stack.attention:
        model = replace(model, attention="standard")
    job = Job(
        model=model,
        plan=plan,
        stack=stack,
        device=topology.device,
        chunks=(),
        nodes=topology.nodes,
    )
    job = replace(job, chunks=_chunks(job))
    job = replace(job, stall=_stall(job))
    return Setup(name=name, job=job, machine=_machine(topology, plan, tuple(stragglers), name))


def _stall(job: Job) -> float:
    """What a micro-step loses to an allocator that is short of memory."""
    allocator = job.stack.allocator
    if not allocator.retry:
        return 0.0
    taken = max(memory.total for memory in footprints(job))
    return allocator.retry if taken > allocator.pressure * job.device.usable_memory else 0.0


def _loaded(scenario: Scenario, file: str, folder: str, kind: type[T]) -> T:
    name = getattr(scenario, file)
    path = catalog.find(folder, name, where=f"{scenario.name}, {file}")
    changes = scenario.changes(file)
    place = catalog.place(path, changed=bool(changes))
    return catalog.validate(changed(catalog.read(path), changes, place), kind, place)


def _topology(scenario: Scenario) -> Topology:
    """The cluster of a scenario, with as many GPUs as it asks for (or as the plan spells out)."""
    where = f"{scenario.name}, topology"
    overrides = scenario.changes("topology")
    overrides |= {f"device.{key}": value for key, value in scenario.changes("device").items()}
    topology = topologies.load(scenario.topology, overrides, where=where)
    plan = scenario.plan
    gpus = scenario.gpus or (plan.tp * plan.cp * plan.pp * plan.dp if plan.dp else topology.gpus)
    return topology.with_gpus(gpus)


def _chunks(job: Job) -> tuple[tuple[Chunk, ...], ...]:
    """Per stage its chunks of layers."""
    plan, model = job.plan, job.model
    stages, chunks = plan.pp, plan.interleave if plan.interleaved else 1
    head, embedding = _costs_in_layers(job)
    pieces = split(
        model.layers,
        stages,
        chunks,
        balance=_balance(job, stages * chunks),
        head=head,
        embedding=embedding,
    )
    return tuple(tuple(pieces[c * stages + s] for c in range(chunks)) for s in range(stages))


def _balance(job: Job, pieces: int) -> Balance | tuple[int, ...]:
    """The plan's own word, else the stack's way, else an even split where there is one."""
    layers = job.model.layers
    if job.plan.layers is not None:
        return job.plan.layers
    if job.stack.balance != "even" or layers % pieces == 0:
        return job.stack.balance
    return "ends" if (layers + 2) % pieces == 0 else "cost"


def _costs_in_layers(job: Job) -> tuple[float, float]:
    """Matrix multiplications of the head and of the embedding, in layers.

    A "quota" counts weights only, as nanotron does.
    """
    model = job.model
    if job.stack.balance == "quota":
        return model.hidden * model.vocab / model.layer_weights, 0.0
    layer = 2.0 * model.seq * model.layer_weights + 4.0 * model.seq**2 * model.query_width
    return 2.0 * model.seq * model.hidden * model.vocab / layer, 0.0


def _machine(
    topology: Topology, plan: Plan, stragglers: tuple[Straggler, ...], name: str
) -> Machine:
    slowdown: dict[int, float] = {}
    for number, one in enumerate(stragglers):
        where = f"{name}, straggler {number + 1}"
        if one.link is not None:
            topology = topology.slowed(one.link, one.factor)
        for rank in _slow_ranks(one, topology, plan, where):
            slowdown[rank] = slowdown.get(rank, 1.0) * one.factor
    backend = backends.load(topology.backend, where=f"topology {topology.name}, backend")
    return Machine(topology, backend, slowdown)


def _slow_ranks(one: Straggler, topology: Topology, plan: Plan, where: str) -> Iterable[int]:
    if one.rank is not None:
        _check(where, "rank", one.rank, topology.gpus)
        return [one.rank]
    if one.node is not None:
        _check(where, "node", one.node, topology.nodes)
        first = one.node * topology.gpus_per_node
        return range(first, min(first + topology.gpus_per_node, topology.gpus))
    if one.stage is not None:
        _check(where, "stage", one.stage, plan.pp)
        return _ranks_of_stage(plan, one.stage)
    return []


def _ranks_of_stage(plan: Plan, stage: int) -> list[int]:
    mesh = Mesh(axes=plan.mesh)
    return [rank for rank in range(mesh.size) if mesh.coordinates(rank)["pp"] == stage]


def _check(where: str, key: str, value: int, size: int) -> None:
    if not 0 <= value < size:
        raise InputError(where, f"{key} = {value} but there are {size}", f"use 0 to {size - 1}")
