"""How good predictions are: the errors of one table in a few numbers.

Error is predicted / measured - 1, MAPE the mean of its absolute value, bias its mean (all
fractions). The naive predictor assumes one constant hardware-FLOP utilisation (recomputation
counted), fitted on the very table it is judged on (least absolute relative error).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sim.validation.validate import Row, Table


def summary(table: Table) -> dict[str, Any]:
    """The keys of `--json`, fractions throughout."""
    timed = [row for row in table.rows if row.error is not None]
    errors = np.array([row.error for row in timed])
    found: dict[str, Any] = {
        "table": table.name,
        "rows": len(table.rows),
        "simulated": sum(row.predicted is not None for row in table.rows),
    }
    if timed:
        found |= {
            "mape": float(np.mean(np.abs(errors))),
            "median": float(np.median(np.abs(errors))),
            "bias": float(np.mean(errors)),
            "worst": float(errors[np.argmax(np.abs(errors))]),
            "spearman": _spearman(timed),
            "naive_mape": naive_mape(timed),
        }
    return found | _memory(table)


def _memory(table: Table) -> dict[str, Any]:
    rows = [row for row in table.rows if row.memory_error is not None]
    found: dict[str, Any] = {}
    if rows:
        found["memory_median"] = float(np.median([abs(row.memory_error or 0.0) for row in rows]))
        for zero in sorted({row.zero for row in rows}):
            some = [abs(row.memory_error or 0.0) for row in rows if row.zero == zero]
            found[f"memory_median_zero{zero}"] = float(np.median(some))
    if rows or not all(row.fits_measured for row in table.rows):
        found |= _confusion(table)
    return found


def _confusion(table: Table) -> dict[str, Any]:
    known = [row for row in table.rows if row.fits_predicted is not None]
    cells = {
        f"{_word(measured)}_predicted_{_word(predicted)}": sum(
            row.fits_measured == measured and row.fits_predicted == predicted for row in known
        )
        for measured in (True, False)
        for predicted in (True, False)
    }
    shares = []
    for fits in (True, False):
        of_class = [row.fits_predicted == fits for row in known if row.fits_measured == fits]
        shares += [sum(of_class) / len(of_class)] if of_class else []
    return {"fits_accuracy": float(np.mean(shares)) if shares else None, "fits": cells}


def _word(fits: bool) -> str:
    return "fits" if fits else "too_big"


def naive_mape(rows: Sequence[Row]) -> float:
    """MAPE of time = (time at peak) / utilisation with the utilisation that suits best."""
    ratios = np.array([(row.at_peak or 0.0) / (row.measured or 1.0) for row in rows])
    # The best constant for a mean absolute relative error is a weighted median of 1/ratio.
    order = np.argsort(1.0 / ratios)
    weights = np.cumsum(ratios[order])
    best = (1.0 / ratios[order])[np.searchsorted(weights, weights[-1] / 2.0)]
    return float(np.mean(np.abs(ratios * best - 1.0)))


def _spearman(rows: Sequence[Row]) -> float | None:
    """Rank correlation of predicted and measured step times; None below two rows."""
    if len(rows) < 2:
        return None
    import pandas as pd

    predicted = pd.Series([row.predicted for row in rows]).rank()
    measured = pd.Series([row.measured for row in rows]).rank()
    return float(predicted.corr(measured))


def to_dict(tables: Sequence[Table]) -> dict[str, Any]:
    """What `--json` prints."""
    return {"tables": [summary(table) for table in tables]}
