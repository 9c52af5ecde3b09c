"""Fitting the constants of a collective library to measured calls, and saying how well they fit."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from math import exp, log, nan
from statistics import median
from typing import Any

from sim.calibration.fitting.nccl_tables import Run
from sim.config.errors import InputError

Tree = dict[str, Any]  # constants as nested tables, in SI
Predict = Callable[[Run], float]  # seconds

LARGE = 64 * 1024  # bytes; what training sends is above
PULL = 0.03  # error (of the logarithm) that a factor of e away from the present constant costs


def best(
    constants: Tree,
    paths: Sequence[str],
    runs: Sequence[Run],
    predictor: Callable[[Tree], Predict],
) -> Tree:
    """The constants with those at dotted `paths` fitted to the runs.

    Minimises the soft-L1 of log(predicted / measured) over the logarithms of the constants, with
    a weak pull to where they start, so that what the runs do not show stays as it was.
    """
    start = [log(get(constants, path)) for path in paths]

    def with_values(logs: Iterable[float]) -> Tree:
        tried = deepcopy(constants)
        for path, value in zip(paths, logs, strict=True):
            put(tried, path, exp(value))
        return tried

    found = _least_squares()(
        _residuals(lambda logs: predictor(with_values(logs)), start, runs),
        start,
        bounds=([-60.0] * len(paths), [_ceiling(path) for path in paths]),
        loss="soft_l1",
        f_scale=0.05,
        diff_step=1e-3,
        max_nfev=100,
    )
    return with_values(found.x)


def _least_squares() -> Any:
    try:
        from scipy.optimize import least_squares  # type: ignore[import-untyped]  # ships no types
    except ImportError:
        raise InputError(
            "fitting",
            "needs scipy, which is not installed",
            "pip install 'clustersim[calibrate]'",
        ) from None
    return least_squares


def _residuals(
    predictor: Callable[[Iterable[float]], Predict], start: list[float], runs: Sequence[Run]
) -> Callable[[Sequence[float]], list[float]]:
    def residuals(logs: Sequence[float]) -> list[float]:
        predict = predictor(logs)
        errors = [log(predict(run) / run.time) * (1.0 if run.size > LARGE else 0.5) for run in runs]
        return errors + [PULL * (x - x0) for x, x0 in zip(logs, start, strict=True)]

    return residuals


_FREE = ("launch", "message", "time", "half", "touch", "nvls_hop", "near", "far", "cache")


def _ceiling(path: str) -> float:
    """Fractions of a line rate stay below 1; times, sizes and rates are free."""
    key = path.split(".")[-1]
    return 60.0 if key in _FREE or ".hop." in path else 1e-9


def alternate(runs: Sequence[Run], first: int) -> list[Run]:
    """The runs at every other size of their table, from the first or the second size on."""
    sizes: dict[str, list[float]] = {}
    for run in runs:
        sizes.setdefault(run.table, []).append(run.size)
    kept = {table: set(sorted(set(found))[first::2]) for table, found in sizes.items()}
    return [run for run in runs if run.size in kept[run.table]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableError:
    """Absolute errors predicted/measured - 1 of one table, and of its runs above 64 KiB.

    The latter are NaN where it has none.
    """

    table: str
    runs: int
    median: float
    worst: float
    median_large: float
    worst_large: float


def table_errors(predict: Predict, runs: Sequence[Run]) -> list[TableError]:
    """One line for each table."""
    return [
        _table_error(table, predict, [run for run in runs if run.table == table])
        for table in dict.fromkeys(run.table for run in runs)
    ]


def _table_error(table: str, predict: Predict, runs: list[Run]) -> TableError:
    every = [abs(predict(run) / run.time - 1) for run in runs]
    large = [error for error, run in zip(every, runs, strict=True) if run.size > LARGE]
    return TableError(
        table=table,
        runs=len(runs),
        median=median(every),
        worst=max(every),
        median_large=median(large) if large else nan,
        worst_large=max(large, default=nan),
    )


def get(tree: Mapping[str, Any], path: str) -> float:
    """The number at a dotted path."""
    value: Any = tree
    for key in path.split("."):
        value = value[key]
    return float(value)


def put(tree: Tree, path: str, value: float) -> None:
    """Set the number at a dotted path whose tables exist."""
    *keys, last = path.split(".")
    for key in keys:
        tree = tree[key]
    tree[last] = value
