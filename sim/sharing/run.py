"""Play a way to share updates on a machine: from a plan to its outcome."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from sim.engine.machine import Machine
from sim.engine.processes import Place, Regions, World
from sim.sharing.learning.classifiers import Logistic, Perceptron
from sim.sharing.learning.optimizers import Optimizer
from sim.sharing.learning.quadratic import Quadratic
from sim.sharing.learning.task import Nothing, Task
from sim.sharing.link_variability import weather
from sim.sharing.methods import data_parallel, federated, gossip, local_sgd, parameter_server
from sim.sharing.outcome import Outcome, outcome
from sim.sharing.placement import server_shares, taken
from sim.sharing.plan import Learning, Sharing
from sim.sharing.record import Record
from sim.sharing.server import Server, Shards
from sim.sharing.slowdowns import Pace, steady
from sim.sharing.team import Team
from sim.sharing.worker import Worker
from sim.sharing.workload import Workload

METHODS: dict[str, Callable[[Team], None]] = {
    "all_reduce": data_parallel.start,
    "data_parallel": data_parallel.start,
    "parameter_server": parameter_server.start,
    "gossip": gossip.start,
    "local_sgd": local_sgd.start,
    "async_local_sgd": local_sgd.start,
    "federated": federated.start,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A plan with all that it needs: where workers and servers are, and what workers compute."""

    name: str
    plan: Sharing
    machine: Machine
    workers: tuple[Place, ...]
    servers: Mapping[Place, float]
    works: tuple[Workload, ...]
    task: Task = field(default_factory=Nothing)
    keep: int = 200_000


def stage(
    plan: Sharing,
    machine: Machine,
    work: Workload | Sequence[Workload],
    *,
    name: str = "sharing",
    task: Task | None = None,
    keep: int = 200_000,
) -> Stage:
    """Put workers and servers onto a machine, which grows by the nodes of dedicated servers.

    `work` is every worker's step, or one for each; `task` replaces the plan's own; `keep` is the
    number of spans for pictures. Raises `InputError` where the plan does not fit.
    """
    where = f"{name}, sharing"
    topology = machine.topology
    each = topology.gpus_per_node if plan.worker == "node" else 1
    count = plan.workers or max(1, (topology.gpus - taken(plan, topology.gpus_per_node)) // each)
    works = (work,) * count if isinstance(work, Workload) else tuple(work)
    plan.check(count, where)
    plan.compression.check(works[0].parameters, f"{where}.compression")
    workers = tuple(Place(tuple(range(i * each, (i + 1) * each))) for i in range(count))
    servers, gpus = server_shares(plan, workers, topology.gpus_per_node, where)
    if gpus > 1 and gpus != topology.gpus:
        machine = replace(machine, topology=topology.with_gpus(gpus))
    return Stage(
        name=name,
        plan=plan,
        machine=machine,
        workers=workers,
        servers=servers,
        works=works,
        task=task or task_of(plan, count),
        keep=keep,
    )


def play(stage: Stage) -> Outcome:
    """Simulate; where something is slow, once more without it, to see what it costs."""
    began = time.perf_counter()
    team = _team(stage, healthy=False)
    _run(team)
    reference = None
    if not _is_healthy(stage):
        reference = _team(replace(stage, keep=0, task=Nothing()), healthy=True)
        _run(reference)
    return outcome(stage.name, team, reference, wall_seconds=time.perf_counter() - began)


def build(stage: Stage) -> Team:
    """The team alone, for those who want to watch it."""
    return _team(stage, healthy=False)


def _run(team: Team) -> None:
    METHODS[team.plan.method](team)
    until = team.plan.until
    team.world.run(None if until is None else team.world.sleep(until))


def _is_healthy(stage: Stage) -> bool:
    plan = stage.plan
    quiet = not (plan.straggler or plan.fault or plan.change)
    return quiet and all(group.slowdown == 1.0 for group in plan.group) and stage.machine.is_healthy


def task_of(plan: Sharing, workers: int) -> Task:
    """The task that the plan's `[sharing.learning]` names."""
    learning = plan.learning
    if learning is None or learning.task == "none":
        return Nothing()
    common: dict[str, Any] = {"workers": workers, "seed": plan.seed, "batch": plan.batch}
    if learning.task == "logistic":
        return Logistic(size=learning.size, unlike=learning.unlike, **common)
    if learning.task == "perceptron":
        return Perceptron(hidden=learning.size, unlike=learning.unlike, **common)
    return Quadratic(
        size=learning.size,
        condition=learning.condition,
        noise=learning.noise,
        unlike=learning.unlike,
        **common,
    )


def _team(stage: Stage, *, healthy: bool) -> Team:
    plan = stage.plan
    machine = stage.machine.healthy if healthy else stage.machine
    world, rule = _world(stage, machine), _rule(plan.learning)
    record = Record(world, stage.task, forgives=bool(plan.learning and plan.learning.decay))
    team = Team(plan, world, _workers(stage, world, rule, healthy=healthy), stage.task, record)
    if stage.servers:
        shards = Shards(places=stage.servers, rate=_server_rate(plan))
        sums = plan.servers == "spare"
        team.server = Server(world, shards, stage.task.start, rule, record, sums=sums)
    if not healthy:
        _plan_changes(stage, world)
    return team


def _workers(stage: Stage, world: World, rule: Optimizer, *, healthy: bool) -> list[Worker]:
    plan, pace = stage.plan, None if healthy else _pace(stage)
    return [
        Worker(
            rank,
            place,
            world=world,
            work=stage.works[rank],
            task=stage.task,
            pace=pace or steady,
            usual=pace.usual[rank] if pace else 1.0,
            copies=plan.copies,
            faults=() if healthy else [one for one in plan.fault if one.rank == rank],
            compression=plan.compression,
            memory_bandwidth=world.topology.device.memory_bandwidth,
            rule=rule,
            seed=plan.seed,
        )
        for rank, place in enumerate(stage.workers)
    ]


def _pace(stage: Stage) -> Pace:
    plan = stage.plan
    factors = dict(stage.machine.slowdown)
    for group in plan.group:
        for rank in group.ranks:
            for gpu in stage.workers[rank].gpus:
                factors[gpu] = factors.get(gpu, 1.0) * group.slowdown
    topology, steps = stage.machine.topology, plan.steps if plan.until is None else 1 << 20
    return Pace(
        plan.straggler,
        factors,
        stage.workers,
        topology,
        steps=steps,
        copies=plan.copies,
        seed=plan.seed,
    )


def _world(stage: Stage, machine: Machine) -> World:
    plan, regions = stage.plan, None
    if plan.regions is not None:
        wide = plan.regions
        regions = Regions(nodes=wide.nodes, bandwidth=wide.bandwidth, latency=wide.latency)
    world = World(machine, plan.overhead, regions, keep=stage.keep, each_message=not plan.fluid)
    if plan.server_bandwidth is not None:
        for place in stage.servers:
            if place not in stage.workers:
                world.set_bandwidth(place, plan.server_bandwidth)
    return world


def _server_rate(plan: Sharing) -> float:
    """Bytes of updates that a host works in a second."""
    return plan.server_memory / plan.server_passes if plan.server_passes else float("inf")


def _rule(learning: Learning | None) -> Optimizer:
    if learning is None:
        return Optimizer()
    return Optimizer(rule=learning.optimizer, rate=learning.rate, beta=learning.beta)


def _plan_changes(stage: Stage, world: World) -> None:
    """Links whose rate changes on the way, at known moments or by a law."""
    for one in stage.plan.change:
        for link in world.ways.links_named(one.link):
            world.call(one.at, partial(world.slow_link, link, one.factor, "change"))
    if any(one.links for one in stage.plan.straggler):
        world.start(weather(stage.plan.straggler, world, seed=stage.plan.seed))
