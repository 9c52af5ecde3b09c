"""The files that a scenario names, loaded with its changes, and the cluster that they make, with
its collective library and what is slow on it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sim.collectives.libraries import backend as backends
from sim.config import catalog, reads
from sim.config.checked import altered
from sim.config.errors import InputError
from sim.engine.machine import Machine
from sim.hardware import stack as stacks
from sim.hardware.cluster import topology as topologies
from sim.hardware.cluster.topology import Topology
from sim.model import reading
from sim.model.model import Model
from sim.parallel.mesh import Mesh
from sim.parallel.plan import Plan
from sim.scenario.scenario import BaseScenario, Straggler
from sim.scenario.settings import changed


def load_model(scenario: BaseScenario) -> Model:
    """The model of a scenario with its changes."""
    changes, where = scenario.changes("model"), f"{scenario.name}, model"
    if isinstance(scenario.model, str):
        return _model(scenario.model, changes, where)
    return reading.settled(altered(scenario.model, changes, where), changes)


def load_stack(scenario: BaseScenario, stack: str | stacks.Stack) -> stacks.Stack:
    """A stack with the changes of a scenario."""
    changes, where = scenario.changes("stack"), f"{scenario.name}, stack"
    return (
        _stack(stack, changes, where) if isinstance(stack, str) else altered(stack, changes, where)
    )


def _asked(name: str, changes: Mapping[str, Any], where: str) -> object:
    return name, repr(changes), where


@reads.kept(8, key=_asked)
def _model(name: str, changes: Mapping[str, Any], where: str) -> Model:
    """A model of a file with changes; `where` names the scenario in errors."""
    path = catalog.find("models", name, where=where)
    place = catalog.place(path, changed=bool(changes))
    model = reading.model_of(changed(reading.document(path), changes, place), place)
    return reading.settled(model, changes)


@reads.kept(8, key=_asked)
def _stack(name: str, changes: Mapping[str, Any], where: str) -> stacks.Stack:
    """A stack of a file with changes."""
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
            fault = "there are no stages where updates are shared"
            raise InputError(where, fault, "name a rank or a node")
        _check(where, "stage", straggler.stage, plan.pp)
        return _ranks_of_stage(plan, straggler.stage)
    return []


def _ranks_of_stage(plan: Plan, stage: int) -> list[int]:
    mesh = Mesh(axes=plan.mesh)
    return [rank for rank in range(mesh.size) if mesh.coordinates(rank)["pp"] == stage]


def _check(where: str, key: str, value: int, size: int) -> None:
    if not 0 <= value < size:
        raise InputError(where, f"there is no {key} {value}", f"use 0 to {size - 1}")
