"""Fit the constants of a collective library to measured collectives, by robust least squares over
the logarithms of the constants."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import exp, log
from typing import Any

from sim.analysis.calibration.fitting.measured_collectives import MeasuredCollective
from sim.config.optional import needed
from sim.scenario.settings import changed

FREE = 60.0  # the bound of a constant's logarithm that leaves the constant free


def minimised(
    errors: Callable[[Sequence[float]], list[float]],
    start: Sequence[float],
    ceilings: Sequence[float],
    *,
    pull: float,
    scale: float,
    evaluations: int | None = None,
) -> Sequence[float]:
    """Return the logarithms that minimise the soft-L1 loss of `errors`, whose scale is `scale`.

    `start` and `ceilings` are logarithms, too. A constant that is a factor of e away from its start
    adds an error of `pull`. So a constant that the measurements do not determine stays at its
    start. Raises `InputError` if scipy is missing.
    """
    least_squares = needed("scipy.optimize", "fitting", "calibrate").least_squares

    def residuals(logs: Sequence[float]) -> list[float]:
        return errors(logs) + [pull * (x - x0) for x, x0 in zip(logs, start, strict=True)]

    solution: Sequence[float] = least_squares(
        residuals,
        [min(x, ceiling) for x, ceiling in zip(start, ceilings, strict=True)],
        bounds=([-FREE] * len(start), ceilings),
        loss="soft_l1",
        f_scale=scale,
        diff_step=1e-3,
        max_nfev=evaluations,
    ).x
    return solution


Tree = dict[str, Any]  # constants as nested tables, in SI
Predict = Callable[[MeasuredCollective], float]  # seconds

LARGE = 64 * 1024  # bytes; training sends larger messages, so up to this size errors are halved
PULL = 0.03  # error of the logarithm, added if a constant is a factor of e away from its start


def best(
    constants: Tree,
    paths: Sequence[str],
    collectives: Sequence[MeasuredCollective],
    predictor: Callable[[Tree], Predict],
) -> Tree:
    """Return all constants, after fitting the constants at the dotted `paths` to collectives.

    The fit minimises the soft-L1 loss of log(predicted / measured) over the logarithms of the
    constants. If no measurement determines a constant, a weak pull keeps it at its start.
    """

    def with_values(logs: Iterable[float]) -> Tree:
        return changed(constants, dict(zip(paths, map(exp, logs), strict=True)), "the profile")

    def errors(logs: Sequence[float]) -> list[float]:
        predict = predictor(with_values(logs))
        return [
            log(predict(collective) / collective.time) * (1.0 if collective.size > LARGE else 0.5)
            for collective in collectives
        ]

    start = [log(get(constants, path)) for path in paths]
    ceilings = [_ceiling(path) for path in paths]
    return with_values(minimised(errors, start, ceilings, pull=PULL, scale=0.05, evaluations=100))


_FREE_KEYS = (
    *("launch", "message", "time", "half", "touch", "channel"),
    *("nvls_hop", "near", "far", "cache"),
)


def _ceiling(path: str) -> float:
    """Return the largest logarithm of a constant: 0 for a fraction of a line rate, which stays
    below 1. Times, sizes and rates are free."""
    key = path.split(".")[-1]
    return FREE if key in _FREE_KEYS or ".hop." in path else 1e-9


def get(tree: Mapping[str, Any], path: str) -> float:
    """Return the number at a dotted path."""
    value: Any = tree
    for key in path.split("."):
        value = value[key]
    return float(value)
