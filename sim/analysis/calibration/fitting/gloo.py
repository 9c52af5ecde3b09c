"""Fit gloo's `HostRates` for each kind of collective, or two constants to all-reduces."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import log
from statistics import fmean, median

from sim.analysis.calibration.fitting.constants import Predict, Tree, best
from sim.analysis.calibration.fitting.measured_collectives import MeasuredCollective, alternate
from sim.collectives.libraries import backend
from sim.collectives.libraries.gloo import Gloo, HostRates
from sim.config.errors import InputError
from sim.config.grouped import grouped
from sim.engine.machine import Machine

_CACHES = tuple(2.0**k for k in range(17, 26, 2))  # first guesses of a cache's size, bytes
_KEYS = ("message", "near", "far", "cache")

Transfers = Sequence[tuple[float, float]]


def paths(kind: str) -> list[str]:
    """Return the constants of a kind as dotted paths."""
    return [f"pace.{kind}.{key}" for key in _KEYS]


def fitted_pace(constants: Tree, kind: str, collectives: Sequence[MeasuredCollective]) -> Tree:
    """Return the `HostRates` of a kind of collective as a table: the best of several fits with
    different first guesses. Every other size is fitted."""
    shown = alternate(collectives, 0)
    fits = [
        best({**constants, "pace": {kind: guess}}, paths(kind), shown, predictor)
        for guess in _guesses(shown)
    ]
    pace: Tree = min(fits, key=lambda fit: _misfit(predictor(fit), shown))["pace"][kind]
    return pace


def _guesses(shown: Sequence[MeasuredCollective]) -> Iterator[Tree]:
    """Yield first guesses. The time of a message is the time at the smallest size. The rate is
    bytes / time at the largest size. The guesses differ in the size of the cache."""
    by_size = sorted(shown, key=lambda collective: collective.size)
    smallest, largest = by_size[0], by_size[-1]
    rate = largest.size / largest.time
    for cache in [cache for cache in _CACHES if cache < largest.size] or [largest.size]:
        yield {"message": smallest.time, "near": 2.0 * rate, "far": rate, "cache": cache}


def _misfit(predict: Predict, shown: Sequence[MeasuredCollective]) -> float:
    return fmean(abs(log(predict(collective) / collective.time)) for collective in shown)


def predictor(constants: Tree) -> Predict:
    """Return a function that predicts a collective's seconds by gloo with these constants."""
    pace = {kind: HostRates(**table) for kind, table in constants["pace"].items()}
    gloo = Gloo(**{**constants, "pace": pace})
    return lambda collective: collective.duration(gloo.call_cost(collective))


def fitted(machine: Machine, ranks: int, transfers: Transfers) -> Machine:
    """Return the machine with the measured cost of a gloo message and the measured bandwidth.

    `transfers` are (bytes, seconds) of all-reduces over n = `ranks` ranks. The time at the smallest
    size is twice the cost of a message: a ring's reduce-scatter and all-gather take a message each.
    The slope from the second largest to the largest size gives the bandwidth, since an all-reduce
    of S bytes puts 2 (n - 1) / n S bytes on a link.
    """
    library = backend.load("gloo")
    network = machine.topology.network
    assert isinstance(library, Gloo)
    if network is None:
        raise InputError("topology", "has no network for the ranks", "use topology = 'cpu-2'")
    message, bandwidth = constants(ranks, transfers)
    topology = replace(
        machine.topology, network=replace(network, bandwidth=bandwidth / network.efficiency)
    )
    return replace(machine, topology=topology, backend=replace(library, message=message))


def constants(ranks: int, transfers: Transfers) -> tuple[float, float]:
    """Return the seconds of a message, and the bandwidth (B/s).

    >>> message, bandwidth = constants(2, [(64.0, 2e-4), (1e6, 1.2e-3), (5e6, 5.2e-3)])
    >>> message, round(bandwidth)
    (0.0001, 1000000000)
    """
    points = sorted((size, median(times)) for size, times in grouped(transfers).items())
    (_, shortest), (small, faster), (large, slower) = points[0], points[-2], points[-1]
    slope = max(slower - faster, 1e-9) / (large - small)
    return shortest / 2.0, 2.0 * (ranks - 1) / ranks / slope
