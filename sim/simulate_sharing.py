"""From a scenario with a `[sharing]` table to its outcome: the first file to read of such jobs.

What a scenario names becomes a machine and the work of one worker's step (a model on a device by a
stack, or times that were measured). `sim.sharing.run` puts workers and servers on the machine and
lets them live by the method.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from sim.collectives.group import GroupShape
from sim.collectives.libraries import backend as backends
from sim.config import catalog
from sim.config.errors import InputError
from sim.engine.machine import Machine
from sim.hardware import device as devices
from sim.hardware import stack as stacks
from sim.hardware.cluster import topology as topologies
from sim.hardware.cluster.topology import Topology
from sim.hardware.device import Device
from sim.hardware.stack import Stack
from sim.program import Collective
from sim.scenario.scenario import SharingScenario, Straggler, changed, load
from sim.sharing.outcome import Outcome
from sim.sharing.plan import Sharing, Times
from sim.sharing.run import Stage, play, stage
from sim.sharing.worker_step import Model, free, read_model, worker_step
from sim.sharing.workload import Piece, Workload

__all__ = ["set_up", "share"]


def share(scenario: SharingScenario | str, **options: Any) -> Outcome:
    """Play a scenario in which workers share updates.

    `scenario` may be a name such as "ps-async"; `options` are those of `sim.sharing.run.stage`.
    Raises `InputError`.

    >>> result = share("ps-async")
    >>> result.updates, result.dropped
    (800, 0)
    """
    if isinstance(scenario, str):
        loaded = load(scenario)
        if not isinstance(loaded, SharingScenario):
            raise InputError(scenario, "has no [sharing] table", "run it as a synchronous job")
        scenario = loaded
    return play(set_up(scenario, **options))


def set_up(scenario: SharingScenario, **options: Any) -> Stage:
    """Load what a scenario names and put it on its machine. Raises `InputError`."""
    plan, where = scenario.sharing, scenario.name
    topology = _topology(scenario)
    slowdown: dict[int, float] = {}
    for one in scenario.straggler:
        if one.link is not None:
            topology = topology.slowed(one.link, one.factor)
        for gpu in _slow(one, topology, f"{where}, straggler"):
            slowdown[gpu] = slowdown.get(gpu, 1.0) * one.factor
    machine = Machine(topology, backends.load(scenario.backend), slowdown)
    together = _in_step(scenario, machine)
    work = _workload(scenario, topology.device, together)
    found = stage(plan, machine, work, name=where, **options)
    return replace(found, works=_of_groups(scenario, found, together))


def _in_step(scenario: SharingScenario, machine: Machine) -> Callable[[Collective], float]:
    """How long a collective of all workers takes on an idle network, where they go in step."""
    topology = machine.topology
    if scenario.sharing.method != "all_reduce" or topology.gpus == 1:
        return free
    shape = GroupShape.of(topology.gpus, topology.gpus_per_node)

    def seconds(call: Collective) -> float:
        cost = machine.backend.call_cost(call.kind, call.bytes, shape, machine.interconnect)
        return machine.interconnect.duration(cost, shape)

    return seconds


def _slow(one: Straggler, topology: Topology, where: str) -> Iterable[int]:
    """The GPUs that a straggler names."""
    if one.stage is not None:
        raise InputError(where, "there are no stages where updates are shared", "name a rank")
    if one.rank is not None:
        return [one.rank]
    if one.node is None:
        return []
    first = one.node * topology.gpus_per_node
    return range(first, first + topology.gpus_per_node)


def _topology(scenario: SharingScenario) -> Topology:
    overrides = scenario.changes("topology")
    overrides |= {f"device.{key}": value for key, value in scenario.changes("device").items()}
    where = f"{scenario.name}, topology"
    topology = topologies.load(scenario.topology, overrides, where=where)
    plan = scenario.sharing
    each = topology.gpus_per_node if plan.worker == "node" else 1
    gpus = scenario.gpus or (plan.workers * each if plan.workers else topology.gpus)
    if gpus > topology.gpus_per_node:  # whole nodes, of which the last may not be used in full
        gpus = -(-gpus // topology.gpus_per_node) * topology.gpus_per_node
    return topology.with_gpus(gpus)


def _workload(
    scenario: SharingScenario,
    device: Device,
    together: Callable[[Collective], float],
    stack: str = "",
) -> Workload:
    plan = scenario.sharing
    each = plan.batch
    if plan.times is not None:
        return measured(plan.times, plan)
    if not scenario.model:
        remedy = 'set model = "resnet50", or give [sharing.times]'
        raise InputError(scenario.name, "says nothing of what the workers compute", remedy)
    software = _stack(scenario, stack or scenario.stack)
    made = worker_step(_model(scenario), each, plan, software, device, together)
    gpus = 1 if plan.worker == "gpu" else _topology(scenario).gpus_per_node
    return replace(made, batch=each * gpus)


def measured(times: Times, plan: Sharing) -> Workload:
    """A step that was measured, cut into equal layers.

    >>> times = Times(forward=0.1, backward=0.2, parameters=1e6, layers=2)
    >>> measured(times, Sharing(method="all_reduce")).pieces[0]
    Piece(forward=0.05, backward=0.1, parameters=500000.0)
    """
    piece = Piece(
        forward=times.forward / times.layers,
        backward=times.backward / times.layers,
        parameters=times.parameters / times.layers,
    )
    width = 4.0 if plan.precision in ("fp32", "tf32") else 2.0
    pieces = (piece,) * times.layers
    return Workload(pieces=pieces, optimizer=times.optimizer, width=width, batch=plan.batch)


def _of_groups(
    scenario: SharingScenario, found: Stage, together: Callable[[Collective], float]
) -> tuple[Workload, ...]:
    """Every worker's step; groups on another device have another."""
    works = list(found.works)
    for number, group in enumerate(found.plan.group):
        if group.device or group.stack:
            where = f"{scenario.name}, sharing.group {number + 1}"
            if scenario.sharing.times is not None:
                what = "[sharing.times] were not measured on another device or stack"
                raise InputError(where, what, "give slowdown = 2.0 or the like")
            usual = found.machine.topology.device
            device = devices.load(group.device, where=where) if group.device else usual
            other = _workload(scenario, device, together, group.stack)
            other = replace(other, memory=device.memory_bandwidth)
            for rank in group.ranks:
                works[rank] = other
    return tuple(works)


def _model(scenario: SharingScenario) -> Model:
    path = catalog.find("models", scenario.model, where=f"{scenario.name}, model")
    changes = scenario.changes("model")
    place = catalog.place(path, changed=bool(changes))
    return read_model(changed(catalog.read(path), changes, place), place)


def _stack(scenario: SharingScenario, name: str) -> Stack:
    path = catalog.find("topologies/stacks", name, where=f"{scenario.name}, stack")
    changes = scenario.changes("stack")
    place = catalog.place(path, changed=bool(changes))
    return catalog.validate(changed(catalog.read(path), changes, place), stacks.Stack, place)
