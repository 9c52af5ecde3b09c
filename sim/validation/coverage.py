"""How often measured step times lie within the intervals that other measurements give them.

Measurements are kept out in two ways: a whole table at a time, whose stacks are then new to the
rest (unless another table has them), and every other row, once the even and once the odd rows.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Any

from sim.uncertainty.evidence import Evidence
from sim.uncertainty.intervals import LEVEL
from sim.validation.spread import spreads
from sim.validation.validate import ValidatedRun, ValidatedTable

BAR = (0.80, 0.97)  # what the 90 % interval should cover


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Of a table: shares of its rows within their intervals, and the intervals' median width.

    `table` and `rows` name what was kept out of the fit; a width is high / low.
    """

    name: str
    count: int
    table: float
    table_width: float
    rows: float
    rows_width: float


@dataclass(frozen=True, slots=True)
class _Hits:
    """Whether each run lies within its interval, and the intervals' widths."""

    within: list[bool]
    widths: list[float]


def coverage(tables: Sequence[ValidatedTable]) -> list[Coverage]:
    """Per table with measured rows that were predicted."""
    timed = [kept for table in tables if (kept := _timed(table)).rows]
    return [_of_table(table, timed) for table in timed]


def _timed(table: ValidatedTable) -> ValidatedTable:
    return replace(table, rows=tuple(run for run in table.rows if run.error is not None))


def _of_table(table: ValidatedTable, tables: Sequence[ValidatedTable]) -> Coverage:
    unseen = _hits(table.rows, [other for other in tables if other is not table])
    halves = [
        _hits(table.rows[kept_out::2], [_half(other, 1 - kept_out) for other in tables])
        for kept_out in (0, 1)
    ]
    within = [hit for half in halves for hit in half.within]
    return Coverage(
        name=table.name,
        count=len(table.rows),
        table=fmean(unseen.within),
        table_width=median(unseen.widths),
        rows=fmean(within),
        rows_width=median(width for half in halves for width in half.widths),
    )


def _half(table: ValidatedTable, first: int) -> ValidatedTable:
    return replace(table, rows=table.rows[first::2])


def _hits(runs: Iterable[ValidatedRun], others: Iterable[ValidatedTable]) -> _Hits:
    """Runs held to the intervals that other measurements give."""
    evidence = Evidence(spreads=tuple(spreads(others)))
    pairs = [
        (
            run.measured or 0.0,
            evidence.interval(run.predicted or 0.0, stack=run.stack, device=run.device),
        )
        for run in runs
    ]
    return _Hits(
        within=[interval.low <= measured <= interval.high for measured, interval in pairs],
        widths=[interval.high / interval.low for _, interval in pairs],
    )


def summary(coverages: Sequence[Coverage]) -> dict[str, Any]:
    """The keys of `--json`: by rows of all tables together, and the mean of the tables."""
    total = sum(table.count for table in coverages)

    def means(share: Callable[[Coverage], float]) -> dict[str, float]:
        pooled = sum(table.count * share(table) for table in coverages) / total if total else 0.0
        return {"rows": pooled, "tables": fmean(map(share, coverages)) if coverages else 0.0}

    return {
        "level": LEVEL,
        "bar": BAR,
        "table_kept_out": means(lambda table: table.table),
        "rows_kept_out": means(lambda table: table.rows),
        "tables": [
            {"table": table.name, "rows": table.count, "table_kept_out": table.table,
             "rows_kept_out": table.rows} for table in coverages
        ],
    }  # fmt: skip


def text(coverages: Sequence[Coverage]) -> str:
    """A line a table, then all rows together and the mean of the tables."""
    width = max(len(name) for name in (*(table.name for table in coverages), "mean of tables"))
    lines = [f"{'coverage of 90 % intervals':<{width}}  rows  table kept out    half kept out"]
    lines += [
        f"{table.name:<{width}}  {table.count:4}  {table.table:6.1%} (x {table.table_width:.2f})  "
        f"{table.rows:6.1%} (x {table.rows_width:.2f})"
        for table in coverages
    ]
    whole = summary(coverages)
    for key, name in (("rows", "all rows"), ("tables", "mean of tables")):
        shares = (whole[kept_out][key] for kept_out in ("table_kept_out", "rows_kept_out"))
        lines.append(f"{name:<{width}}        " + "          ".join(f"{s:6.1%}" for s in shares))
    return "\n".join(lines)
