"""Fitting gloo between the processes of one machine: its cost of a message, and the bandwidth."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from sim.collectives.libraries import backend
from sim.collectives.libraries.gloo import Gloo
from sim.config.errors import InputError
from sim.engine.machine import Machine

Transfers = Sequence[tuple[float, float]]


def fitted(machine: Machine, ranks: int, transfers: Transfers) -> Machine:
    """The machine with gloo's cost of a message and the network's bandwidth as measured.

    `transfers` are (bytes, seconds) of all-reduces over `ranks`. The shortest gives the message:
    reduce-scatter and all-gather of a ring take one each. The slope from the second largest to the
    largest gives the bandwidth: S bytes put 2 (n - 1) / n S on a link.
    """
    library = backend.load("gloo")
    network = machine.topology.network
    assert isinstance(library, Gloo)
    if network is None:
        raise InputError("topology", "ranks without a network", "use topology = 'cpu-2'")
    message, bandwidth = constants(ranks, transfers)
    topology = replace(
        machine.topology, network=replace(network, bandwidth=bandwidth / network.efficiency)
    )
    return replace(machine, topology=topology, backend=replace(library, message=message))


def constants(ranks: int, transfers: Transfers) -> tuple[float, float]:
    """Seconds of a message and bytes a second.

    >>> message, bandwidth = constants(2, [(64.0, 2e-4), (1e6, 1.2e-3), (5e6, 5.2e-3)])
    >>> message, round(bandwidth)
    (0.0001, 1000000000)
    """
    by_size: dict[float, list[float]] = {}
    for size, seconds in transfers:
        by_size.setdefault(size, []).append(seconds)
    points = sorted((size, median(times)) for size, times in by_size.items())
    (_, shortest), (small, faster), (large, slower) = points[0], points[-2], points[-1]
    slope = max(slower - faster, 1e-9) / (large - small)
    return shortest / 2.0, 2.0 * (ranks - 1) / ranks / slope
