"""Fitting gloo: a `HostRates` for each kind of collective."""

from collections.abc import Iterator, Sequence
from math import log
from statistics import fmean

from sim.analysis.calibration.fitting.constants import Predict, Tree, best
from sim.analysis.calibration.fitting.measured_collectives import MeasuredCollective, alternate
from sim.collectives.libraries.gloo import Gloo, HostRates

_CACHES = tuple(2.0**k for k in range(17, 26, 2))  # first guesses of a cache's size, bytes
_KEYS = ("message", "near", "far", "cache")


def paths(kind: str) -> list[str]:
    """The constants of a kind as dotted paths."""
    return [f"pace.{kind}.{key}" for key in _KEYS]


def fitted_pace(constants: Tree, kind: str, collectives: Sequence[MeasuredCollective]) -> Tree:
    """The pace of a kind: the best fit from several first guesses, to every other size."""
    shown = alternate(collectives, 0)
    fits = [
        best({**constants, "pace": {kind: guess}}, paths(kind), shown, predictor)
        for guess in _guesses(shown)
    ]
    pace: Tree = min(fits, key=lambda fit: _misfit(predictor(fit), shown))["pace"][kind]
    return pace


def _guesses(shown: Sequence[MeasuredCollective]) -> Iterator[Tree]:
    """The shortest time is that of a message, the largest size shows the rate; the cache is varied
    over all sizes."""
    by_size = sorted(shown, key=lambda collective: collective.size)
    smallest, largest = by_size[0], by_size[-1]
    rate = largest.size / largest.time
    for cache in [cache for cache in _CACHES if cache < largest.size] or [largest.size]:
        yield {"message": smallest.time, "near": 2.0 * rate, "far": rate, "cache": cache}


def _misfit(predict: Predict, shown: Sequence[MeasuredCollective]) -> float:
    return fmean(abs(log(predict(collective) / collective.time)) for collective in shown)


def predictor(constants: Tree) -> Predict:
    """Seconds that gloo with these constants takes on an idle fabric."""
    pace = {kind: HostRates(**table) for kind, table in constants["pace"].items()}
    gloo = Gloo(**{**constants, "pace": pace})
    return lambda collective: collective.duration(gloo.call_cost(collective))
