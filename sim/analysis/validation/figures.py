"""Tables of measured jobs that a kind of scenario reads itself, with several figures in each row.

A folder of `sim.jobs` that reads such tables has a function `measures(columns)`: it says whether a
table with these columns is one of them. `rows` in its module `measured` turns rows into scenarios
with the measured figures (`id`, `document`, `measured`, `parts`, `assumed`, `pair`, `lacks`).
"""

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib import import_module
from io import StringIO
from pathlib import Path
from statistics import fmean
from types import ModuleType
from typing import Any

from sim import kind
from sim.config import reads
from sim.config.counting import counted
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.grouped import grouped
from sim.config.plugins import modules
from sim.results.answer import Answer, Inputs
from sim.scenario.settings import Settings

STEP = "step"  # the figure of `step_time` in an answer; other figures are causes in `spent`


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureRun:
    """A measured figure of a row and its prediction (s); `reason` says why a prediction is missing.
    Rows of one `pair` are compared with the pair's first row."""

    table: str
    id: str
    figure: str
    measured: float
    predicted: float | None = None
    pair: str = ""
    assumed: tuple[str, ...] = ()
    reason: str = ""

    @property
    def error(self) -> float | None:
        """predicted / measured - 1."""
        return None if self.predicted is None else self.predicted / self.measured - 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRun:
    """Two measured jobs, with the ratio of the first job's time to the second job's, measured and
    predicted."""

    first: str
    second: str
    measured: float
    predicted: float

    @property
    def same_order(self) -> bool:
        """Whether the job that was measured to be faster is also predicted to be faster."""
        return (self.measured > 1.0) == (self.predicted > 1.0)

    @property
    def error(self) -> float:
        """predicted / measured - 1."""
        return self.predicted / self.measured - 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureValidation(Answer):
    """Measured jobs with several figures each, and a prediction of each figure."""

    view = "sim.interface.views.validation:figures"
    picture = "sim.interface.plots.validation:figures"
    derived = ("errors", "pairs")
    frame_rows = "rows"

    inputs: Inputs
    runs: tuple[FigureRun, ...]

    @property
    def errors(self) -> list[dict[str, Any]]:
        """For each figure: the number of runs, the mean absolute error (MAPE), the mean error
        (bias), and the worst error. `of_step` is the mean absolute error as a share of the measured
        step, over rows with a measured step (None without such rows)."""
        groups = grouped(
            (f"{run.table}, {run.figure}", run) for run in self.runs if run.error is not None
        )
        steps = {(run.table, run.id): run.measured for run in self.runs if run.figure == STEP}
        return [_errors(figure, runs, steps) for figure, runs in groups.items()]

    @property
    def pairs(self) -> list[PairRun]:
        """The steps of the first row of each pair, compared with the steps of the pair's other
        rows."""
        groups = grouped(
            (run.pair, run)
            for run in self.runs
            if run.pair and run.figure == STEP and run.predicted is not None
        )
        return [
            PairRun(
                first=first.id,
                second=other.id,
                measured=first.measured / other.measured,
                predicted=(first.predicted or 0.0) / (other.predicted or 1.0),
            )
            for first, *others in groups.values()
            for other in others
        ]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Every figure with its prediction."""
        return [{**asdict(run), "error": run.error} for run in self.runs]


def _errors(
    figure: str, runs: Sequence[FigureRun], steps: Mapping[tuple[str, str], float]
) -> dict[str, Any]:
    errors = [run.error or 0.0 for run in runs]
    shares = [
        abs(error) * run.measured / steps[run.table, run.id]
        for run, error in zip(runs, errors, strict=True)
        if (run.table, run.id) in steps
    ]
    return {
        "figure": figure,
        "runs": len(errors),
        "mape": fmean(map(abs, errors)),
        "bias": fmean(errors),
        "worst": max(errors, key=abs),
        "of_step": fmean(shares) if shares else None,
    }


def owner(path: Path) -> ModuleType | None:
    """Return the folder of the kind that reads a table itself; None if there is none. Raises
    `InputError` for a file that cannot be read."""
    columns = next(csv.reader(StringIO(reads.text(path))), [])
    folders = modules("sim.jobs").values()
    offering = (folder for folder in folders if hasattr(folder, "measures"))
    return next((folder for folder in offering if folder.measures(columns)), None)


def validate_figures(
    *tables: Path, settings: Settings = (), at_most: int | None = None
) -> FigureValidation:
    """Play every row of tables, or the first `at_most` rows of each, with settings. Raises
    `InputError` for a table that no kind reads itself, and if no row can be played."""
    rows = [(path.stem, row) for path in tables for row in list(_rows(path))[:at_most]]
    known: dict[str, Any] = {}
    runs = [run for table, row in counted(rows, total=len(rows), unit="row")
            for run in _runs(table, row, settings, known)]  # fmt: skip
    if runs and all(run.predicted is None for run in runs):
        fault, first = f"none of its {len(rows)} rows was simulated", runs[0]
        raise InputError(", ".join(map(str, tables)), fault, f"{first.id}: {first.reason}")
    return FigureValidation(inputs=Inputs(), runs=tuple(runs))


def _rows(path: Path) -> Iterator[Any]:
    folder = owner(path)
    if folder is None:
        raise InputError(str(path), "has columns that no kind of jobs reads", "rename its columns")
    records = list(csv.DictReader(StringIO(reads.text(path))))
    if not records:
        raise InputError(str(path), "has no rows", "name a CSV of measured runs")
    yield from import_module(f"{folder.__name__}.measured").rows(path.stem, records)


def _runs(table: str, row: Any, settings: Settings, known: dict[str, Any]) -> Iterator[FigureRun]:
    """Yield the figures of a row. Rows that describe the same job are played once."""
    found, reason = None, row.lacks
    if not reason:
        document = {key: value for key, value in row.document.items() if key != "name"}
        try:
            if str(document) not in known:
                known[str(document)] = _figures(dict(row.document), settings)
            found = known[str(document)]
        except InputError as error:
            reason = str(error)
    for figure, measured in row.measured.items():
        yield FigureRun(
            table=table,
            id=row.id,
            figure=figure,
            measured=measured,
            predicted=found and sum(found[part] for part in row.parts.get(figure, (figure,))),
            pair=row.pair,
            assumed=row.assumed,
            reason=reason,
        )


def _figures(document: dict[str, Any], settings: Settings) -> Mapping[str, float]:
    answer = kind.answer(kind.set_up(kind.described(document, settings), brief=True))
    return {STEP: float(answer.get("step_time")), **answer.get("spent")}
