"""How often measured step times lie within the intervals that other measurements give them.

Measurements are kept out in two ways: a whole table at a time, whose stacks are then new to the
rest (unless another table has them), and every other row, once the even and once the odd ones.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Any

from sim.uncertainty.evidence import Evidence
from sim.uncertainty.intervals import LEVEL, Interval
from sim.validation.spread import spreads
from sim.validation.validate import Row, Table

BAR = (0.80, 0.97)  # what the 90 % interval should cover


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Of one table: shares of its rows within their intervals, and the intervals' median width.

    `table` and `rows` say what was kept out of the fit, a width is high / low.
    """

    name: str
    count: int
    table: float
    table_width: float
    rows: float
    rows_width: float


@dataclass(frozen=True, slots=True)
class _Found:
    """Whether each row lies within its interval, and the intervals' widths."""

    within: list[bool]
    widths: list[float]


def coverage(tables: Sequence[Table]) -> list[Coverage]:
    """Per table with measured rows that were predicted."""
    timed = [kept for one in tables if (kept := _timed(one)).rows]
    return [_of_table(one, timed) for one in timed]


def _timed(table: Table) -> Table:
    return replace(table, rows=tuple(row for row in table.rows if row.error is not None))


def _of_table(table: Table, tables: Sequence[Table]) -> Coverage:
    without = _found(table.rows, [one for one in tables if one is not table])
    halves = [
        _found(table.rows[kept::2], [replace(one, rows=one.rows[1 - kept :: 2]) for one in tables])
        for kept in (0, 1)
    ]
    within = [hit for half in halves for hit in half.within]
    return Coverage(
        name=table.name,
        count=len(table.rows),
        table=fmean(without.within),
        table_width=median(without.widths),
        rows=fmean(within),
        rows_width=median(width for half in halves for width in half.widths),
    )


def _found(rows: Iterable[Row], others: Iterable[Table]) -> _Found:
    """Rows held to the intervals that other measurements give."""
    known = Evidence(spreads=tuple(spreads(others)))
    pairs = [(row.measured or 0.0, interval(known, row)) for row in rows]
    return _Found(
        within=[one.low <= measured <= one.high for measured, one in pairs],
        widths=[one.high / one.low for _, one in pairs],
    )


def interval(known: Evidence, row: Row) -> Interval:
    """The interval of a row's prediction."""
    return known.interval(row.predicted or 0.0, stack=row.stack, device=row.device)


def summary(found: Sequence[Coverage]) -> dict[str, Any]:
    """The keys of `--json`: by rows of all tables together, and the mean of the tables."""
    total = sum(one.count for one in found)

    def both(of: Callable[[Coverage], float]) -> dict[str, float]:
        pooled = sum(one.count * of(one) for one in found) / total if total else 0.0
        return {"rows": pooled, "tables": fmean(map(of, found)) if found else 0.0}

    return {
        "level": LEVEL,
        "bar": BAR,
        "table_kept_out": both(lambda one: one.table),
        "rows_kept_out": both(lambda one: one.rows),
        "tables": [
            {"table": one.name, "rows": one.count, "table_kept_out": one.table,
             "rows_kept_out": one.rows} for one in found
        ],
    }  # fmt: skip


def text(found: Sequence[Coverage]) -> str:
    """A line a table, then all rows together and the mean of the tables."""
    width = max(len(name) for name in (*(one.name for one in found), "mean of tables"))
    lines = [f"{'coverage of 90 % intervals':<{width}}  rows  table kept out    half kept out"]
    lines += [
        f"{one.name:<{width}}  {one.count:4}  {one.table:6.1%} ({_times(one.table_width)})  "
        f"{one.rows:6.1%} ({_times(one.rows_width)})"
        for one in found
    ]
    whole = summary(found)
    for key, name in (("rows", "all rows"), ("tables", "mean of tables")):
        kept = (whole[way][key] for way in ("table_kept_out", "rows_kept_out"))
        lines.append(f"{name:<{width}}        " + "          ".join(f"{one:6.1%}" for one in kept))
    return "\n".join(lines)


def _times(width: float) -> str:
    return f"x {width:.2f}"
