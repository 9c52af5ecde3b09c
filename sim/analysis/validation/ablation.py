"""The worth of each mechanism: errors of measured rows with and without it.

Mechanisms are data (`measurements/mechanisms.toml`): a name, and the settings that switch it off.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sim.analysis.executors import Jobs
from sim.analysis.validation.errors import summary
from sim.analysis.validation.shipped import FOLDER
from sim.analysis.validation.validate import ValidatedTable, validate_each
from sim.config import catalog
from sim.config.dataclass import dataclass
from sim.scenario.settings import flat

SHOWN = ("mape", "bias", "memory_median")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mechanism:
    """A mechanism of the model. `without` holds the settings that switch it off, by dotted key."""

    name: str
    without: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    mechanism: tuple[Mechanism, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ablation:
    """A table with and without a mechanism. It has the errors of the same rows before and after the
    mechanism is switched off, and the number of rows whose prediction moved."""

    mechanism: str
    table: str
    rows: int
    moved: int
    before: Mapping[str, Any]
    after: Mapping[str, Any]


def mechanisms() -> tuple[Mechanism, ...]:
    """Return the mechanisms of `measurements/mechanisms.toml`, or of the user's own file."""
    return catalog.load(FOLDER, "mechanisms", _File).mechanism


def ablations(
    paths: Sequence[Path], *, at_most: int | None = None, jobs: Jobs = None
) -> list[Ablation]:
    """Switch off each mechanism for each table; return the results where a prediction moves."""
    named = mechanisms()
    variants = [{}, *(dict(flat(mechanism.without)) for mechanism in named)]
    whole, *others = validate_each(paths, variants, at_most=at_most, jobs=jobs)
    found = [
        _of(mechanism.name, table, less)
        for mechanism, without in zip(named, others, strict=True)
        for table, less in zip(whole, without, strict=True)
    ]
    return [row for row in found if row.moved]


def _of(mechanism: str, table: ValidatedTable, without: ValidatedTable) -> Ablation:
    pairs = [
        (run, less)
        for run, less in zip(table.rows, without.rows, strict=True)
        if run.predicted is not None and less.predicted is not None
    ]
    both = [
        summary(ValidatedTable(name=table.name, rows=rows))
        for rows in (tuple(run for run, _ in pairs), tuple(less for _, less in pairs))
    ]
    return Ablation(
        mechanism=mechanism,
        table=table.name,
        rows=len(pairs),
        moved=sum(
            (run.predicted, run.memory_predicted) != (less.predicted, less.memory_predicted)
            for run, less in pairs
        ),
        before={key: both[0].get(key) for key in SHOWN},
        after={key: both[1].get(key) for key in SHOWN},
    )


def to_dict(found: Sequence[Ablation]) -> list[dict[str, Any]]:
    """Return the fractions that `--json` prints."""
    return [
        {
            "mechanism": row.mechanism,
            "table": row.table,
            "rows": row.rows,
            "moved": row.moved,
            **{key: row.before[key] for key in SHOWN},
            **{f"{key}_without": row.after[key] for key in SHOWN},
        }
        for row in found
    ]
