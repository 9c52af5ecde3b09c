"""The cluster that a measured run had, in the state in which its own measurement shows it."""

from collections.abc import Mapping
from math import log
from typing import Any

from sim.analysis.validation.settings import NO_SETTINGS, changed_topology
from sim.collectives.algorithms import ring
from sim.collectives.group import GroupShape
from sim.collectives.libraries import backend
from sim.config.errors import InputError
from sim.engine.machine import Machine
from sim.hardware.cluster.topology import Topology
from sim.program.checks import MeasuredBandwidth


def cluster_of(
    row: Mapping[str, Any], all_reduce: float | None, settings: Mapping[str, Any] = NO_SETTINGS
) -> Topology:
    """The cluster that a row names, or one of its states, with `settings` (dotted keys) applied.

    Bus bandwidth (B/s) of a large `all_reduce` over all devices of the job tells them apart:
    nearest is, by ratio, what the library reaches or what was measured in a state with the next
    number of devices. Raises `InputError`.
    """
    where = str(row["id"])
    cluster = changed_topology(str(row["cluster"]), settings, where)
    gpus = int(row["gpus"])
    if all_reduce is None or gpus <= cluster.gpus_per_node:
        return cluster
    nearest, distance = cluster, float("inf")
    for name in cluster.states:
        state = changed_topology(name, settings, cluster.name)
        slow = _measured(state, gpus)
        usual = _bus_bandwidth(cluster, slow.size, gpus)
        if abs(log(all_reduce / slow.bus_bandwidth)) < min(abs(log(all_reduce / usual)), distance):
            nearest, distance = state, abs(log(all_reduce / slow.bus_bandwidth))
    return nearest


def _measured(state: Topology, gpus: int) -> MeasuredBandwidth:
    """The all-reduce measured in a state over about so many devices."""
    known = (
        *(state.network.measured if state.network else ()),
        *(state.checks.measured if state.checks else ()),
    )
    reduced = [one for one in known if one.collective == "all_reduce"]
    if not reduced:
        fault = "is a state of a cluster without a measured all-reduce"
        raise InputError(state.name, fault, "add one to network.measured or checks.measured")
    return min(reduced, key=lambda one: abs(log(one.gpus / gpus)))


def _bus_bandwidth(cluster: Topology, size: float, gpus: int) -> float:
    """B/s that the library's all-reduce reaches on a healthy cluster."""
    machine = Machine(cluster.with_gpus(gpus), backend.load(cluster.backend, where=cluster.name))
    shape = GroupShape.of(gpus, cluster.gpus_per_node)
    call = machine.call("all_reduce", size, shape)
    seconds = call.duration(machine.backend.call_cost(call))
    return ring.cost("all_reduce", gpus).bytes * size / seconds
