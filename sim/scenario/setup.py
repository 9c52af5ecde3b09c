"""From a scenario's names to things: the job to run and the machine to run it on.

Shared updates are set up by the same functions (`sim.scenario.sharing_setup`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sim.collectives.libraries import backend as backends
from sim.config import catalog, limit
from sim.config.checked import altered
from sim.config.errors import InputError
from sim.config.units import human_bytes
from sim.engine.machine import Machine
from sim.engine.ordering import ordered
from sim.hardware import stack as stacks
from sim.hardware.cluster import topology as topologies
from sim.hardware.cluster.topology import Topology
from sim.model import optimizers, reading
from sim.model.block import check_adapters, check_graphs, check_rule
from sim.model.experts.settings import layers_of
from sim.model.kinds import check_layers
from sim.model.network import Network
from sim.model.recommendation import recommendation
from sim.model.transformer import Transformer
from sim.parallel.axis import axes, dividing
from sim.parallel.chunks import chunks_of
from sim.parallel.deferred import check_deferred
from sim.parallel.host_memory import host_memory
from sim.parallel.job import Job
from sim.parallel.mesh import Mesh
from sim.parallel.offloading import with_checkpoints
from sim.parallel.plan import WHOLE, Plan
from sim.parallel.recomputed_layers import check_method
from sim.parallel.resolved import resolved
from sim.parallel.step import training_step
from sim.parallel.unused import check_used
from sim.parallel.versions import check_versions
from sim.program.program import Program
from sim.scenario.scenario import (
    RecordedScenario,
    Scenario,
    SharingScenario,
    Straggler,
    changed,
    flat,
    name_of,
)

_OF_PASS = 3e-4  # s on one core, on the clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Everything that a simulation needs, checked; `model` is what the scenario calls the model,
    `change` are the values that it has changed in the files it names."""

    name: str
    job: Job
    machine: Machine
    model: str = ""
    change: Mapping[str, Any] = field(default_factory=dict)

    @property
    def program(self) -> Program:
        """What every rank does in a step."""
        return training_step(self.job)

    def replanned(self, plan: Plan) -> "Setup":
        """The job with another plan on the same machine, slow ranks included. Raises `InputError`
        where the plan cannot run."""
        job = self.job
        other = assemble(
            self.name,
            model=job.model,
            stack=job.stack,
            topology=self.machine.topology,
            plan=plan,
        )
        return replace(other, machine=self.machine)

    def same_as(self, other: "Setup") -> bool:
        """Whether the two are one job on one machine, whatever it and its model are called."""
        jobs = (replace(one.job, model=replace(one.job.model, name="")) for one in (self, other))
        return self.machine == other.machine and next(jobs) == next(jobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A program that was not written from a plan, and the machine that it runs on."""

    program: Program
    machine: Machine


def from_scenario(scenario: Scenario) -> Setup:
    """Load what a scenario names and apply its changes. Raises `InputError`."""
    if isinstance(scenario, SharingScenario):
        what = "shares updates by a method of its own ([sharing]): it has no step of the whole job"
        raise InputError(scenario.name, what, "use `sim run`, or a scenario without [sharing]")
    if isinstance(scenario, RecordedScenario):
        what = "plays the recorded step of a script, which has laid it out"
        raise InputError(scenario.name, what, "use `sim run`, or a scenario with a model")
    topology, plan = load_topology(scenario), scenario.plan
    gpus = scenario.gpus or (plan.degree(axes()) if plan.dp else topology.gpus)
    setup = assemble(
        scenario.name,
        model=load_model(scenario),
        stack=load_stack(scenario, scenario.stack),
        topology=topology.with_gpus(gpus),
        plan=plan,
        stragglers=scenario.straggler,
    )
    return replace(setup, model=name_of(scenario.model), change=dict(flat(scenario.change)))


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
    check_layers(model)
    plan = resolved(plan, topology.gpus, where=where)
    passes = 2 * plan.pp * plan.interleave * plan.microbatches
    limit.refuse_long(where, f"{passes:,} passes", passes * _OF_PASS)
    stack = stack.running(plan.precision, where=where).reducing(plan.grad_reduce_in_fp32)
    offload = with_checkpoints(plan.offload, stack.checkpointing, plan.recompute)
    plan = replace(plan, offload=offload)
    _check_links(plan, topology, where)
    _check_network(model, plan, topology, where)
    _check_experts(model, plan, where)
    if plan.pp > 1 and plan.zero > stack.pipeline_zero:
        what = f"zero = {plan.zero} with pp = {plan.pp}, which {stack.name} refuses"
        raise InputError(where, what, f"set zero = {stack.pipeline_zero}")
    if plan.pp > model.layers:
        raise InputError(
            where, f"pp = {plan.pp} stages for {model.layers} layers", f"set pp <= {model.layers}"
        )
    if not stack.attention:
        model = _with_scores(model, where)
    job = Job(
        model=model,
        plan=plan,
        stack=stack,
        device=topology.device,
        chunks=chunks_of(model, stack, plan, topology.device),
        checks=topology.checks,
        node=topology.gpus_per_node,
    )
    check_used(plan, where)
    check_method(plan, (one.kinds for own in job.chunks for one in own), where)
    check_versions(job, where)
    check_rule(job.rule, model.kinds, job.execution, where=where)
    check_adapters(model.kinds, job.execution, where=where)
    _check_graphs(job, where)
    check_deferred(job, where)
    _check_host_memory(job, topology, where)
    on = machine(topology, plan, tuple(stragglers), name)
    return Setup(name=name, job=ordered(job, on), machine=on)


def _with_scores(model: Transformer, where: str) -> Transformer:
    """The model as a stack without fused attention runs it."""
    try:
        return replace(model, attention="standard")
    except ValueError as error:
        raise InputError.of(where, error, "the stack has no fused attention: ") from None


def _check_graphs(job: Job, where: str) -> None:
    """Refuse CUDA graphs where there is nothing to launch, or nothing to put into them."""
    if job.plan.cuda_graph and job.device.generation in ("cpu", "tpu"):
        raise InputError(where, f"cuda_graph, but {job.device.name} has none", "leave it out")
    # That of moe_preprocess goes on from moe_router's, and may find nothing to do.
    scopes = [one for one in job.plan.cuda_graph if one not in (WHOLE, "moe_preprocess")]
    check_graphs(scopes, job.model.kinds, job.execution, where=where)


def _check_experts(model: Transformer, plan: Plan, where: str) -> None:
    """Refuse what only experts need in a model without any."""
    if tables := recommendation(model):
        tables.check_ranks(plan.ep, plan.data_parallel, where)
        plan = replace(plan, ep=1)
    if found := layers_of(model):
        _check_shared(any(own.shared_width for own in found), plan, where)
        return
    usual = {
        "ep": 1, "etp": 1, "dispatcher": None, "overlap_experts": None, "overlap_shared": None
    }  # fmt: skip
    for key, value in usual.items():
        if getattr(plan, key) != value:
            what = f"{key} is set but the model has no experts"
            raise InputError(where, what, f"leave {key} out")


def _check_shared(shared: bool, plan: Plan, where: str) -> None:
    """Refuse to hide tokens behind shared experts that are not there, or a second time."""
    if not plan.overlap_shared:
        return
    if not shared:
        what = "overlap_shared is set but the model has no shared experts"
        raise InputError(where, what, "leave overlap_shared out")
    if any(plan.passes().pairs):
        what = (
            f"overlap_shared, but passes of other microbatches run beside tokens ({plan.pipeline})"
        )
        raise InputError(where, what, "set overlap_experts = false, or leave overlap_shared out")


def _check_network(model: Transformer, plan: Plan, topology: Topology, where: str) -> None:
    """Refuse what only a transformer's layers can, and what only convolutions can."""
    kind = model.source.kind if isinstance(model, Network) else "transformer"
    if plan.stash is not None and kind != "convolutional":
        what = "stash is how convolutional networks keep feature maps, which this model has none of"
        raise InputError(where, what, "leave it out, or set recompute")
    if not isinstance(model, Network):
        return
    divided = dividing("weights", "sequence")
    if (parts := plan.degree(divided)) > 1:
        names = "*".join(plan.split(divided))
        what = f"{names} = {parts}, but only a transformer's layers can be divided"
        raise InputError(where, what, "raise dp or pp instead")
    optimizer = optimizers.of(plan.optimizer, where=where)
    if plan.activations is not None or plan.lora is not None or optimizer.orthogonalised:
        key = "activations" if plan.activations else "lora" if plan.lora else "optimizer"
        what = f"{key} of layers that are no transformer's are not known"
        raise InputError(where, what, f"leave {key} out")
    topology.device.peak_rate(plan.precision)  # refuses what the device does not have
    model.source.check(plan.precision, topology.device.name)


def _check_links(plan: Plan, topology: Topology, where: str) -> None:
    """Refuse offload to a host that the cluster says nothing of."""
    if not plan.offload:
        return
    host = topology.host
    if host is None:
        what = f"offload, but {topology.name} does not say how its devices reach their hosts"
        raise InputError(where, what, "add a [host] table to the topology, or leave it out")
    if plan.offload.nvme and not (host.read and host.write):
        what = f"offload to drives, but the hosts of {topology.name} have none"
        raise InputError(where, what, "set host.read and host.write, or nvme = false")


def _check_host_memory(job: Job, topology: Topology, where: str) -> None:
    held = host_memory(job, topology)
    if topology.host is not None and held > topology.host.memory:
        room = human_bytes(topology.host.memory)
        what = f"offload needs {human_bytes(held)} of a host's {room}"
        raise InputError(where, what, "lower its shares, shard over more nodes, or set nvme = true")


def load_document(
    scenario: Scenario, file: str, folder: str, name: str
) -> tuple[dict[str, Any], str]:
    """A file that a scenario names, with the scenario's changes, and how errors name it."""
    path = catalog.find(folder, name, where=f"{scenario.name}, {file}")
    changes = scenario.changes(file)
    place = catalog.place(path, changed=bool(changes))
    read = reading.document(path) if folder == "models" else catalog.document(folder, path)
    return changed(read, changes, place), place


def load_model(scenario: Scenario) -> Transformer:
    """The model of a scenario with its changes."""
    if not isinstance(scenario.model, str):
        return altered(scenario.model, scenario.changes("model"), f"{scenario.name}, model")
    return reading.model_of(*load_document(scenario, "model", "models", scenario.model))


def load_stack(scenario: Scenario, stack: str | stacks.Stack) -> stacks.Stack:
    """A stack with the changes of a scenario."""
    if not isinstance(stack, str):
        return altered(stack, scenario.changes("stack"), f"{scenario.name}, stack")
    document, place = load_document(scenario, "stack", "topologies/stacks", stack)
    return catalog.validate(document, stacks.Stack, place)


def load_topology(scenario: Scenario) -> Topology:
    """The cluster of a scenario, with as many GPUs as its own file says."""
    overrides, where = scenario.changes("topology"), f"{scenario.name}, topology"
    if scenario.gpus and "gpus" in overrides:
        what = f"topology.gpus, but gpus = {scenario.gpus} says how many are used"
        raise InputError(f"{scenario.name}, change", what, "set gpus")
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
    """A topology with a collective library and what is slow on it.

    A job without a `plan` has no stages. The library is the topology's unless a `backend` is given;
    all of the topology's GPUs are in use unless only so many `ranks` are. Raises `InputError`.
    """
    slowdown: dict[int, float] = {}
    for number, straggler in enumerate(stragglers):
        where = f"{name}, straggler {number + 1}"
        if straggler.link is not None and straggler.traffic is not None:
            topology = topology.shared(straggler.link, straggler.traffic)
        elif straggler.link is not None:
            topology = topology.slowed(straggler.link, straggler.factor or 1.0)
        for rank in _slow_ranks(straggler, topology, plan, ranks or topology.gpus, where):
            slowdown[rank] = slowdown.get(rank, 1.0) * (straggler.factor or 1.0)
    where = f"topology {topology.name}, backend"
    return Machine(topology, backends.load(backend or topology.backend, where=where), slowdown)


def _slow_ranks(
    straggler: Straggler, topology: Topology, plan: Plan | None, ranks: int, where: str
) -> Iterable[int]:
    each = topology.gpus_per_node
    if straggler.rank is not None:
        _check(where, "rank", straggler.rank, ranks)
        return [straggler.rank]
    if straggler.node is not None:
        _check(where, "node", straggler.node, -(-ranks // each))
        return range(straggler.node * each, min((straggler.node + 1) * each, ranks))
    if straggler.stage is not None:
        if plan is None:
            what = "there are no stages where updates are shared"
            raise InputError(where, what, "name a rank or a node")
        _check(where, "stage", straggler.stage, plan.pp)
        return _ranks_of_stage(plan, straggler.stage)
    return []


def _ranks_of_stage(plan: Plan, stage: int) -> list[int]:
    mesh = Mesh(axes=plan.mesh)
    return [rank for rank in range(mesh.size) if mesh.coordinates(rank)["pp"] == stage]


def _check(where: str, key: str, value: int, size: int) -> None:
    if not 0 <= value < size:
        raise InputError(where, f"there is no {key} {value}", f"use 0 to {size - 1}")
