"""How good predictions are: the errors of one table in a few numbers.

Error is predicted / measured - 1, MAPE the mean of its absolute value, bias its mean (all
fractions). The naive predictor assumes one constant utilisation of the hardware's FLOP/s
(recomputation counts as work). This constant is fitted, by least absolute relative error, to the
very table on which the predictor is judged.

Regret is the cost of choosing a layout by prediction: (measured time of the chosen layout / the
best measured time of the job's layouts) - 1.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from sim.analysis.validation import changes
from sim.analysis.validation.validate import ValidatedRun, ValidatedTable
from sim.config.grouped import grouped


def of_group(measured: Sequence[float], ranking: Sequence[float]) -> float:
    """Return the regret of the layout that is ranked first; the mean regret if several tie.

    >>> of_group([2.0, 1.0, 1.5], [10.0, 20.0, 30.0]), of_group([2.0, 1.0], [1.0, 1.0])
    (1.0, 0.5)
    """
    first = [time for time, rank in zip(measured, ranking, strict=True) if rank <= min(ranking)]
    return float(np.mean(first)) / min(measured) - 1.0


RANKED = 20  # a table needs at least so many rows for a verdict on their order
# The range in which each figure should be.
BARS = {
    "bias": (-0.05, 0.05),
    "spearman": (0.95, 1.0),
    "regret_median": (0.0, 0.02),
    "regret_mean": (0.0, 0.10),
}


def summary(table: ValidatedTable) -> dict[str, Any]:
    """Return the keys of `--json`; all figures are fractions."""
    timed = [run for run in table.rows if run.error is not None]
    errors = np.array([run.error for run in timed])
    figures: dict[str, Any] = {
        "table": table.name,
        "rows": len(table.rows),
        "simulated": sum(run.predicted is not None for run in table.rows),
    }
    if timed:
        figures |= {
            "mape": float(np.mean(np.abs(errors))),
            "median": float(np.median(np.abs(errors))),
            "bias": float(np.mean(errors)),
            "worst": float(errors[np.argmax(np.abs(errors))]),
            "spearman": _spearman(timed),
            "naive_mape": naive_mape(timed),
        }
    if len(timed) >= RANKED:
        figures |= _regrets(timed)
    figures |= _repeats([run for run in timed if not run.incident])
    return figures | _memory(table) | changes.summary(table)


def _memory(table: ValidatedTable) -> dict[str, Any]:
    errors = [
        (run.zero, abs(run.memory_error)) for run in table.rows if run.memory_error is not None
    ]
    figures: dict[str, Any] = {}
    if errors:
        figures["memory_median"] = float(np.median([error for _, error in errors]))
        for stage in sorted({zero for zero, _ in errors}):
            of_stage = [error for zero, error in errors if zero == stage]
            figures[f"memory_median_zero{stage}"] = float(np.median(of_stage))
    if errors or not all(run.fits_measured for run in table.rows):
        figures |= _confusion(table)
    return figures


def _confusion(table: ValidatedTable) -> dict[str, Any]:
    runs = [run for run in table.rows if run.fits_predicted is not None]
    cells = {
        f"{_word(measured)}_predicted_{_word(predicted)}": sum(
            run.fits_measured == measured and run.fits_predicted == predicted for run in runs
        )
        for measured in (True, False)
        for predicted in (True, False)
    }
    shares = []
    for fits in (True, False):
        of_class = [run.fits_predicted == fits for run in runs if run.fits_measured == fits]
        shares += [sum(of_class) / len(of_class)] if of_class else []
    return {"fits_accuracy": float(np.mean(shares)) if shares else None, "fits": cells}


def _word(fits: bool) -> str:
    return "fits" if fits else "too_big"


def _regrets(runs: Sequence[ValidatedRun]) -> dict[str, Any]:
    """Return the regret of the layout ranked first, over jobs with several measured layouts."""
    regrets = [of_group(*zip(*layouts, strict=True)) for layouts in _jobs(runs)]
    if not regrets:
        return {}
    return {
        "jobs": len(regrets),
        "regret_median": float(np.median(regrets)),
        "regret_mean": float(np.mean(regrets)),
    }


def _jobs(runs: Sequence[ValidatedRun]) -> Iterator[list[tuple[float, float]]]:
    """Yield, for each job with several layouts, their measured and predicted times. If a layout was
    measured several times, the median is its measured time."""
    for own in grouped((run.job, run) for run in runs).values():
        layouts = grouped((run.predicted or 0.0, run.measured or 0.0) for run in own)
        if len(layouts) > 1:
            yield [(float(np.median(times)), predicted) for predicted, times in layouts.items()]


def _repeats(runs: Sequence[ValidatedRun]) -> dict[str, Any]:
    """Return how far apart runs of one job and layout are; this distance is noise in the errors.

    `noise` is the pooled standard deviation of log(measured) within such groups; `repeated` is the
    number of groups. `apart` is the median of (largest / smallest - 1) in a group.
    """

    def key(run: ValidatedRun) -> tuple[object, ...]:
        same = {(name, str(own)) for name, own in run.configuration.items() if name != "software"}
        return frozenset(same), run.predicted

    groups = grouped((key(run), float(np.log(run.measured or 1.0))) for run in runs)
    repeats = [np.array(times) for times in groups.values() if len(times) > 1]
    if not repeats:
        return {}
    squares = sum(float(np.sum((times - times.mean()) ** 2)) for times in repeats)
    return {
        "repeated": len(repeats),
        "noise": (squares / sum(len(times) - 1 for times in repeats)) ** 0.5,
        "apart": float(np.median([np.exp(times.max() - times.min()) - 1.0 for times in repeats])),
    }


def missed(errors: Mapping[str, Any]) -> set[str]:
    """Return the figures of a summary that are outside their `BARS`."""
    values = {key: errors[key] for key in BARS if errors.get(key) is not None}
    if errors.get("simulated", RANKED) < RANKED:
        values.pop("spearman", None)
    return {key for key, value in values.items() if not BARS[key][0] <= value <= BARS[key][1]}


def mean_of(summaries: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the means of the tables' figures, each over the tables that have the figure."""
    keys = ("mape", "median", "bias", "spearman", "naive_mape", "regret_median", "regret_mean")
    found = {key: [row[key] for row in summaries if row.get(key) is not None] for key in keys}
    return {key: float(np.mean(values)) for key, values in found.items() if values}


def naive_mape(runs: Sequence[ValidatedRun]) -> float:
    """Return the MAPE of time = (time at peak) / utilisation, with the best constant
    utilisation."""
    ratios = np.array([(run.at_peak or 0.0) / (run.measured or 1.0) for run in runs])
    # The best constant for a mean absolute relative error is a weighted median of 1/ratio.
    order = np.argsort(1.0 / ratios)
    weights = np.cumsum(ratios[order])
    best = (1.0 / ratios[order])[np.searchsorted(weights, weights[-1] / 2.0)]
    return float(np.mean(np.abs(ratios * best - 1.0)))


def _spearman(runs: Sequence[ValidatedRun]) -> float | None:
    """Return the rank correlation of predicted and measured step times; None where all predicted or
    all measured times are equal."""
    if min(len({run.predicted for run in runs}), len({run.measured for run in runs})) < 2:
        return None
    import pandas as pd

    predicted = pd.Series([run.predicted for run in runs]).rank()
    measured = pd.Series([run.measured for run in runs]).rank()
    return float(predicted.corr(measured))
