"""Validation for people: rows and tables as text, as CSV and as a picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sim.config.files import atomic_write
from sim.config.units import human_bytes, human_seconds
from sim.validation.errors import summary
from sim.validation.validate import Row, Table

_COLUMNS = ("simulated", "mape", "median", "bias", "worst", "spearman", "naive_mape")
_TITLES = ("rows", "MAPE", "median", "bias", "worst", "rank corr.", "naive MAPE")


def text(tables: Sequence[Table], *, quiet: bool = False) -> str:
    """Every row (unless `quiet`), what could not be simulated and why, and the tables' errors."""
    parts = [] if quiet else [_rows(table) for table in tables]
    return "\n\n".join([*parts, *_left_out(tables), _summaries(tables), *_memories(tables)])


def _rows(table: Table) -> str:
    width = max(len(row.id) for row in table.rows)
    lines = [f"{table.name}", f"  {'row':<{width}}  measured  predicted   error"]
    for row in table.rows:
        if row.predicted is None:
            continue
        measured = "did not fit" if row.measured is None else human_seconds(row.measured)
        error = "" if row.error is None else f"{row.error:+7.1%}"
        lines.append(
            f"  {row.id:<{width}}  {measured:>8}  {human_seconds(row.predicted):>9}  {error}"
            f"{_row_memory(row)}"
        )
    return "\n".join(lines)


def _row_memory(row: Row) -> str:
    if row.memory_error is None or row.memory_predicted is None or row.memory_measured is None:
        return "" if row.fits_predicted in (None, row.fits_measured) else "   fits: wrong"
    measured, predicted = human_bytes(row.memory_measured), human_bytes(row.memory_predicted)
    return f"   {row.memory_kind} {measured} {predicted} {row.memory_error:+.1%}"


def _left_out(tables: Sequence[Table]) -> list[str]:
    reasons = [(table, row) for table in tables for row in table.rows if row.reason]
    if not reasons:
        return []
    lines = [f"  {table.name}, {row.id}: {_without_id(row)}" for table, row in reasons]
    return ["\n".join([f"not simulated ({len(reasons)} rows):", *lines])]


def _without_id(row: Row) -> str:
    return row.reason.removeprefix(row.id).lstrip(":, ")


def _summaries(tables: Sequence[Table]) -> str:
    width = max(len(table.name) for table in tables)
    head = "  ".join(f"{title:>10}" for title in _TITLES)
    lines = [f"{'table':<{width}}  {head}"]
    for table in tables:
        found = summary(table)
        cells = [f"{found['simulated']}/{found['rows']}"]
        cells += [_cell(key, found.get(key)) for key in _COLUMNS[1:]]
        lines.append(f"{table.name:<{width}}  " + "  ".join(f"{cell:>10}" for cell in cells))
    return "\n".join(lines)


def _cell(key: str, value: float | None) -> str:
    if value is None:
        return "-"
    if key == "spearman":
        return f"{value:.3f}"
    return f"{value:+.1%}" if key in ("bias", "worst") else f"{value:.1%}"


def _memories(tables: Sequence[Table]) -> list[str]:
    return [
        f"{table.name} memory: {_memory_line(found)}"
        for table in tables
        if "memory_median" in (found := summary(table)) or found.get("fits_accuracy") is not None
    ]


def _memory_line(found: dict[str, Any]) -> str:
    parts = [
        f"median error{key.removeprefix('memory_median').replace('_zero', ' zero-')} {value:.1%}"
        for key, value in found.items()
        if key.startswith("memory_median")
    ]
    if found.get("fits_accuracy") is not None:
        cells = ", ".join(f"{key.replace('_', ' ')} {n}" for key, n in found["fits"].items())
        parts.append(f"fits right {found['fits_accuracy']:.1%} balanced ({cells})")
    return "; ".join(parts)


def write_rows(tables: Sequence[Table], path: Path) -> None:
    """One CSV line a row: seconds, bytes and fractions."""
    import pandas as pd

    keys = ("id", "measured", "predicted", "error", "memory_measured", "memory_predicted",
            "memory_error", "fits_measured", "fits_predicted", "reason")  # fmt: skip
    lines = [
        {
            "table": table.name,
            **{key: getattr(row, key) for key in keys},
            "step_low": row.low,
            "step_high": row.high,
        }
        for table in tables
        for row in table.rows
    ]
    with atomic_write(path) as part:
        pd.DataFrame(lines).to_csv(part, index=False)


def plot(tables: Sequence[Table], path: Path) -> None:
    """Predicted against measured step time with intervals, one colour a table, logarithmic axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 6.4), layout="constrained")
    axes = figure.add_subplot()
    for number, table in enumerate(tables):
        timed = [row for row in table.rows if row.error is not None]
        if timed:
            found = summary(table)
            _bars(axes, timed, _COLOURS[number % len(_COLOURS)])
            axes.scatter(
                [row.measured or 0.0 for row in timed],
                [row.predicted or 0.0 for row in timed],
                s=max(6.0, min(40.0, 1500.0 / len(timed))),
                alpha=0.65,
                linewidths=0,
                color=_COLOURS[number % len(_COLOURS)],
                marker=_MARKERS[number // len(_COLOURS) % len(_MARKERS)],
                label=f"{table.name}: {len(timed)} runs, median error {found['median']:.1%}",
                zorder=3 if len(timed) < 50 else 2,
            )
    _decorate(axes)
    with atomic_write(path) as part:
        figure.savefig(part, dpi=150, format=path.suffix.lstrip("."))


def _bars(axes: Any, rows: Sequence[Row], colour: str) -> None:
    """Where the predictions' intervals reach; fainter where there are many."""
    known = [row for row in rows if row.low is not None and row.high is not None]
    axes.vlines(
        [row.measured for row in known],
        [row.low for row in known],
        [row.high for row in known],
        color=colour,
        linewidth=0.8,
        alpha=max(0.08, min(0.6, 20.0 / max(len(known), 1))),
        zorder=1,
    )


# Okabe and Ito 2008: told apart by colour-blind readers too.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000", "#F0E442")


_MARKERS = ("o", "^", "s", "D")  # when the colours are used up


def _decorate(axes: Any) -> None:
    from matplotlib.collections import PathCollection

    low, high = axes.get_xlim()
    low, high = max(low, 1e-3), max(high, 1e-2)
    axes.set_xscale("log")
    axes.set_yscale("log")
    points: list[Any] = [one for one in axes.collections if isinstance(one, PathCollection)]
    bounds = [value for one in points for value in one.get_offsets().ravel()]
    low, high = (min(bounds) / 1.3, max(bounds) * 1.3) if bounds else (low, high)
    axes.plot([low, high], [low, high], color="0.3", linewidth=1, label="predicted = measured")
    axes.fill_between(
        [low, high], [0.8 * low, 0.8 * high], [1.2 * low, 1.2 * high],
        color="0.85", zorder=0, label="within 20 %",
    )  # fmt: skip
    axes.set_xlim(low, high)
    axes.set_ylim(low, high)
    axes.set_aspect("equal")
    axes.set_xlabel("measured step time (s)")
    axes.set_ylabel("predicted step time (s)")
    axes.set_title("One description per cluster and stack; bars are 90 % intervals")
    axes.legend(loc="upper left", fontsize=8)
    axes.grid(which="major", color="0.92", zorder=0)
