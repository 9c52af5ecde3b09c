"""Predictions held against measured runs: the error of every row and of every table.

Error is predicted / measured - 1, MAPE the mean of its absolute value, bias its mean (all
fractions). The naive predictor assumes one constant model-FLOP utilisation, fitted on the very
table it is judged on (least absolute relative error), which no layout can change.
"""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sim.errors import InputError
from sim.study.table import read, setup_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measured run and its prediction; `reason` says why there is none.

    Times in s, memory in bytes; None where not measured or not predicted.
    """

    id: str
    measured: float | None = None
    predicted: float | None = None
    naive_work: float | None = None
    memory_measured: float | None = None
    memory_predicted: float | None = None
    memory_kind: str = ""
    zero: int = 0
    fits_measured: bool = True
    fits_predicted: bool | None = None
    reason: str = ""

    @property
    def error(self) -> float | None:
        """predicted / measured - 1."""
        if self.measured is None or self.predicted is None:
            return None
        return self.predicted / self.measured - 1.0

    @property
    def memory_error(self) -> float | None:
        """The same of memory."""
        if self.memory_measured is None or self.memory_predicted is None:
            return None
        return self.memory_predicted / self.memory_measured - 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """All rows of one table."""

    name: str
    rows: tuple[Row, ...]


def validate(paths: Iterable[Path], *, processes: int | None = None) -> list[Table]:
    """Simulate every row of every table. Raises `InputError` for a table that cannot be read."""
    frames = [(path.stem, read(path).to_dict("records")) for path in paths]
    tasks = [row for _, records in frames for row in records]
    rows = iter(_rows(tasks, processes))
    return [Table(name=name, rows=tuple(next(rows) for _ in records)) for name, records in frames]


def _rows(tasks: Sequence[Mapping[str, Any]], processes: int | None) -> list[Row]:
    from tqdm import tqdm

    bar = tqdm(total=len(tasks), unit="row", disable=None, leave=False)
    with bar, ProcessPoolExecutor(max_workers=processes) as pool:
        done = []
        for row in pool.map(predict, tasks, chunksize=4):
            done.append(row)
            bar.update()
    return done


def predict(record: Mapping[str, Any]) -> Row:
    """Simulate one row."""
    from sim.simulate import run

    known = _measured(record)
    try:
        setup = setup_of(record)
        result = run(setup)
    except InputError as error:
        return Row(**known, reason=str(error))
    state = result.memory_per_gpu
    kind = known["memory_kind"]
    return Row(
        **known,
        predicted=result.step_time,
        naive_work=setup.job.model.model_flops(setup.job.plan.global_batch)
        / (result.ranks * setup.job.device.peak_rate(setup.job.plan.precision)),
        memory_predicted=state.get("allocated" if kind == "allocated" else "total"),
        fits_predicted=result.fits,
    )


def _measured(record: Mapping[str, Any]) -> dict[str, Any]:
    memory = record.get("memory_gb")
    kind = record.get("memory_kind")
    return {
        "id": str(record["id"]),
        "measured": _number(record["step_time_s"]),
        "memory_measured": None if _number(memory) is None else float(memory or 0) * 2.0**30,
        "memory_kind": kind if isinstance(kind, str) else "",
        "zero": int(record["zero"]),
        "fits_measured": bool(record.get("fits", True)),
    }


def _number(value: Any) -> float | None:
    return None if value is None or value != value else float(value)


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
    """MAPE of time = work / utilisation with the utilisation that suits the table best."""
    ratios = np.array([(row.naive_work or 0.0) / (row.measured or 1.0) for row in rows])
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
