"""`sim.validate`: predictions compared with measured runs."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from sim.analysis.executors import Jobs
from sim.analysis.validation import coverage as coverages
from sim.analysis.validation import errors, shipped
from sim.analysis.validation.settings import NO_SETTINGS
from sim.analysis.validation.validate import ValidatedTable
from sim.analysis.validation.validate import validate as validated
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.results.answer import Answer, Inputs
from sim.scenario.settings import Settings, settings_of

_OTHER_UNIT = 500.0  # no wrong prediction explains such a factor, but a unit's prefix (1000) does

_COLUMNS = (
    "id", "measured", "predicted", "error", "memory_measured", "memory_predicted", "memory_error",
    "fits_measured", "fits_predicted", "incident", "reason",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation(Answer):
    """Measured tables with a prediction of each row: errors by table (`errors`), and the `coverage`
    of intervals if it was asked for. `quiet` leaves the rows out of the text."""

    view = "sim.interface.views.validation"
    picture = "sim.interface.plots.validation"
    unwritten = ("quiet", "covered")
    derived = ("tables=summaries", "coverage", "warnings")
    frame_rows = "rows"

    inputs: Inputs
    tables: tuple[ValidatedTable, ...]
    covered: tuple[coverages.Coverage, ...] = ()
    quiet: bool = False

    @property
    def summaries(self) -> list[dict[str, Any]]:
        return [errors.summary(view) for table in self.tables for view in table.views]

    @property
    def coverage(self) -> dict[str, Any] | None:
        if not self.covered:
            return None
        return {**coverages.summary(self.covered), "kinds": coverages.kinds(self.tables)}

    @property
    def warnings(self) -> tuple[str, ...]:
        """The rows whose figures seem to be in another unit than the table's."""
        return tuple(
            f"{table.name}, {run.id}: {column} is {factor} the prediction; is it in {unit}?"
            for table in self.tables
            for run in table.rows
            for column, unit, error in (
                ("step_time_s", "seconds", run.error),
                ("memory_gb", "GiB", run.memory_error),
            )
            if error is not None and (factor := _other_unit(error))
        )

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Every row with its prediction."""
        return [
            {
                "table": table.name,
                **{column: getattr(run, column) for column in _COLUMNS},
                "step_low": run.low,
                "step_high": run.high,
            }
            for table in self.tables
            for run in table.rows
        ]


def validate(
    *tables: str | os.PathLike[str],
    settings: Settings = (),
    stack_of: Mapping[str, str] = NO_SETTINGS,
    at_most: int | None = None,
    jobs: Jobs = None,
    coverage: bool = False,
    quiet: bool = False,
) -> Validation:
    """Simulate every row of tables, or `at_most` rows of each table, evenly spread.

    A table is a name of `measurements/` or the path of a CSV; without arguments, all tables of
    `measurements/` are simulated. `settings` hold for every row. `stack_of` maps names of software
    to the stacks that run its rows. `coverage` also checks how often measured times lie in
    intervals that rest on other measurements only. Raises `InputError`, also if no row can be
    simulated.

    >>> validate("zero_bubble", at_most=1, jobs=1).summaries[0]["rows"]
    1
    """
    changes = settings_of(settings)
    paths = [shipped.table(os.fspath(table)) for table in tables] or shipped.tables()
    found = validated(paths, settings=changes, stack_of=stack_of, at_most=at_most, jobs=jobs)
    _check_simulated(found)
    mapped = {f"software.{name}": stack for name, stack in stack_of.items()}
    return Validation(
        inputs=Inputs(change={**changes, **mapped}),
        tables=tuple(found),
        covered=tuple(coverages.coverage(found)) if coverage else (),
        quiet=quiet,
    )


def _check_simulated(tables: Sequence[ValidatedTable]) -> None:
    rows = [run for table in tables for run in table.rows]
    if rows and all(run.predicted is None for run in rows):
        fault = f"none of {len(rows)} rows was simulated"
        raise InputError(", ".join(table.name for table in tables), fault, rows[0].fault)


def _other_unit(error: float) -> str:
    """How many times as large as its prediction a measured figure is; empty unless the ratio shows
    that the figure is in another unit.

    >>> _other_unit(1 / 1000 - 1), _other_unit(1000 - 1), _other_unit(0.5)
    ('1,000 times', '1 / 1,000 of', '')
    """
    factor = 1.0 / (1.0 + error)
    if factor >= _OTHER_UNIT:
        return f"{factor:,.0f} times"
    return f"1 / {1.0 / factor:,.0f} of" if factor <= 1.0 / _OTHER_UNIT else ""
