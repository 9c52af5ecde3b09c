"""Validation as text: every row, what could not be simulated and why, the errors of the tables."""

from collections.abc import Mapping, Sequence
from typing import Any

from sim.analysis.validation import changes
from sim.analysis.validation.errors import mean_of, missed, summary
from sim.analysis.validation.validate import ValidatedRun, ValidatedTable
from sim.config.units import human_bytes, human_seconds

_TITLES = {
    "simulated": "rows", "mape": "MAPE", "median": "median", "bias": "bias", "worst": "worst",
    "spearman": "rank corr.", "naive_mape": "naive MAPE", "regret_median": "regret",
    "regret_mean": "its mean",
}  # fmt: skip
_MEAN = "mean of tables"
_BARS = (
    "* beyond 5 % of bias, below 0.95 of rank correlation, above 2 % of regret (10 % in the mean)"
)


def text(tables: Sequence[ValidatedTable], *, quiet: bool = False) -> str:
    """The whole page; `quiet` leaves the rows out."""
    parts = [] if quiet else [_rows(table) for table in tables]
    studies = [page for table in tables if (page := changes.text(table))]
    parts += [*_left_out(tables), _summaries(tables), *_memories(tables), *_repeats(tables)]
    parts += studies
    return "\n\n".join(parts)


def _rows(table: ValidatedTable) -> str:
    width = max(len(run.id) for run in table.rows)
    lines = [f"{table.name}", f"  {'row':<{width}}  measured  predicted   error"]
    for run in table.rows:
        if run.predicted is None:
            continue
        measured = "did not fit" if run.measured is None else human_seconds(run.measured)
        error = "" if run.error is None else f"{run.error:+7.1%}"
        lines.append(
            f"  {run.id:<{width}}  {measured:>8}  {human_seconds(run.predicted):>9}  {error}"
            f"{_row_memory(run)}"
        )
    return "\n".join(lines)


def _row_memory(run: ValidatedRun) -> str:
    if run.memory_error is None or run.memory_predicted is None or run.memory_measured is None:
        return "" if run.fits_predicted in (None, run.fits_measured) else "   fits: wrong"
    measured, predicted = human_bytes(run.memory_measured), human_bytes(run.memory_predicted)
    return f"   {run.memory_kind} {measured} {predicted} {run.memory_error:+.1%}"


def _left_out(tables: Sequence[ValidatedTable]) -> list[str]:
    left_out = [(table, run) for table in tables for run in table.rows if run.reason]
    if not left_out:
        return []
    lines = [f"  {table.name}, {run.id}: {_without_id(run)}" for table, run in left_out]
    return ["\n".join([f"not simulated ({len(left_out)} rows):", *lines])]


def _without_id(run: ValidatedRun) -> str:
    return run.reason.removeprefix(run.id).lstrip(":, ")


def _summaries(tables: Sequence[ValidatedTable]) -> str:
    """A line for each table; regret where it is judged, the mean where there are several tables."""
    whole = [summary(table) for table in tables]
    shown = [summary(view) for table in tables for view in table.views]
    titles = {
        key: title
        for key, title in _TITLES.items()
        if not key.startswith("regret") or any(key in own for own in shown)
    }
    if len(tables) > 1:
        shown.append({"table": _MEAN, **mean_of(whole)})
    width = max(len(own["table"]) for own in shown)
    lines = [f"{'table':<{width}}  " + "  ".join(f"{title:>10}" for title in titles.values())]
    lines += [
        f"{own['table']:<{width}}  " + "  ".join(f"{_cell(key, own):>10}" for key in titles)
        for own in shown
    ]
    return "\n".join([*lines, _BARS] if any("*" in line for line in lines) else lines)


def _cell(key: str, errors: Mapping[str, Any]) -> str:
    value = errors.get(key)
    if key == "simulated":
        return "" if value is None else f"{value}/{errors['rows']}"
    if value is None:
        return "-"
    mark = "*" if key in missed(errors) else ""
    if key == "spearman":
        return f"{value:.3f}{mark}"
    return f"{value:{'+' * (key in ('bias', 'worst'))}.1%}{mark}"


def _memories(tables: Sequence[ValidatedTable]) -> list[str]:
    return [
        f"{table.name} memory: {_memory_line(errors)}"
        for table in tables
        if "memory_median" in (errors := summary(table)) or errors.get("fits_accuracy") is not None
    ]


def _repeats(tables: Sequence[ValidatedTable]) -> list[str]:
    """How far runs of the same are from each other: what no prediction can be better than."""
    lines = [
        f"  {table.name}: {errors['noise']:.1%} a run; slowest to fastest {errors['apart']:.1%}"
        f" (median of {errors['repeated']} configurations)"
        for table in tables
        if "noise" in (errors := summary(table))
    ]
    return ["\n".join(["measured more than once:", *lines])] if lines else []


def _memory_line(errors: dict[str, Any]) -> str:
    parts = [
        f"median error{key.removeprefix('memory_median').replace('_zero', ' zero-')} {value:.1%}"
        for key, value in errors.items()
        if key.startswith("memory_median")
    ]
    if errors.get("fits_accuracy") is not None:
        cells = ", ".join(f"{key.replace('_', ' ')} {n}" for key, n in errors["fits"].items())
        parts.append(f"fits right {errors['fits_accuracy']:.1%} balanced ({cells})")
    return "; ".join(parts)
