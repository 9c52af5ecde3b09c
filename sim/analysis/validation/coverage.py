"""How often do measured step times lie within the intervals that other measurements give them?

Measurements are kept out of the evidence in two ways. First, a whole table is kept out, so its
campaigns are new to the evidence (unless another table has them). Second, the even rows and then
the odd rows of each campaign are kept out, so the evidence knows their stack. All tables that are
not judged, and the packaged tables, stay in the evidence. Rows that measured an incident are not
judged.

The share of rows within intervals does not say how wide the intervals are, so a proper score is
given, too: the interval score of log(step time), width + 2 / alpha x (distance outside), with 1 -
alpha the level of the intervals (Gneiting and Raftery 2007, "Strictly proper scoring rules,
prediction, and estimation", JASA 102, equation 43). The score is smallest for the true quantiles.
An interval whose ends differ by 35 % and that holds all measurements scores 0.3.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from itertools import chain
from math import log
from statistics import fmean
from typing import Any

from sim.analysis.validation.spread import counts, spreads
from sim.analysis.validation.validate import ValidatedRun, ValidatedTable
from sim.config.dataclass import dataclass
from sim.uncertainty.evidence import Evidence, evidence
from sim.uncertainty.intervals import LEVEL, Interval, interval

BAR = (0.85, 0.95)  # share of rows that the 90 % intervals should hold


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Runs compared with their intervals: the share of runs within, the mean width (high / low),
    the mean interval score, and the mean distance |log(measured / expected)|."""

    covered: float
    width: float
    score: float
    off: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """The coverage of a table, with the whole `table` or half its `rows` kept out of evidence."""

    name: str
    count: int
    table: Held
    rows: Held


def coverage(tables: Sequence[ValidatedTable], packaged: Evidence | None = None) -> list[Coverage]:
    """Return the coverage of each table that has measured and predicted rows. The evidence also
    includes other `packaged` tables (default: `sim.uncertainty.evidence`)."""
    timed = [kept for table in tables if (kept := _timed(table)).rows]
    known, names = packaged or evidence(), {table.name for table in timed}

    def shown(judged: Iterable[ValidatedTable]) -> Evidence:
        return known.replaced(spreads(judged), tables=names)

    halves = [shown(_half(table, 1 - kept_out) for table in timed) for kept_out in (0, 1)]
    return [
        _of_table(table, shown(other for other in timed if other is not table), halves)
        for table in timed
    ]


def kinds(
    tables: Sequence[ValidatedTable], packaged: Evidence | None = None
) -> list[dict[str, Any]]:
    """Return the coverage of each kind of work. The evidence, from these tables and the `packaged`
    ones, then lacks this kind. The coverage shows how sure a prediction is for a kind of work that
    nobody has measured."""
    timed = [_timed(table) for table in tables]
    shown = (packaged or evidence()).replaced(
        spreads(timed), tables={table.name for table in timed}
    )
    runs = [run for table in timed for run in table.rows if run.campaign]
    found = []
    for kind in sorted({run.campaign.work for run in runs if run.campaign}):
        known = Evidence(spreads=tuple(spread for spread in shown.spreads if spread.work != kind))
        of_kind = [run for run in runs if run.campaign and run.campaign.work == kind]
        held = _held(_judged(of_kind, known))
        found.append({"kind": kind, "rows": len(of_kind), **asdict(held)})
    return found


def _timed(table: ValidatedTable) -> ValidatedTable:
    """Return the table with the rows that are judged, sorted by campaign, since some tables
    alternate precisions."""
    together = sorted(filter(counts, table.rows), key=lambda run: repr(run.campaign))
    return replace(table, rows=tuple(together))


def _of_table(table: ValidatedTable, unseen: Evidence, halves: Sequence[Evidence]) -> Coverage:
    rows = [_judged(table.rows[kept_out::2], half) for kept_out, half in enumerate(halves)]
    return Coverage(
        name=table.name,
        count=len(table.rows),
        table=_held(_judged(table.rows, unseen)),
        rows=_held([*chain.from_iterable(rows)]),
    )


def _half(table: ValidatedTable, first: int) -> ValidatedTable:
    return replace(table, rows=table.rows[first::2])


def _judged(runs: Sequence[ValidatedRun], known: Evidence) -> list[tuple[float, Interval]]:
    """Return measured step times with the intervals that the evidence gives."""
    errors = {run.campaign: known.errors(run.campaign) for run in runs if run.campaign}
    return [
        (run.measured or 0.0, interval(run.predicted or 0.0, errors[run.campaign]))
        for run in runs
        if run.campaign
    ]


def _held(judged: Sequence[tuple[float, Interval]]) -> Held:
    return Held(
        covered=fmean(interval.low <= measured <= interval.high for measured, interval in judged),
        width=fmean(interval.high / interval.low for _, interval in judged),
        score=fmean(score(measured, interval) for measured, interval in judged),
        off=fmean(abs(log(measured / interval.expected)) for measured, interval in judged),
    )


def score(measured: float, interval: Interval) -> float:
    """Return the interval score of log(step time); smaller is better."""
    outside = max(log(interval.low / measured), log(measured / interval.high), 0.0)
    return log(interval.high / interval.low) + 2.0 / (1.0 - interval.level) * outside


def summary(coverages: Sequence[Coverage]) -> dict[str, Any]:
    """Return the keys of `--json`: means over all rows, and means over tables."""
    return {
        "level": LEVEL,
        "bar": BAR,
        **{
            f"{kept_out}_kept_out": {
                "rows": _mean(coverages, kept_out, lambda table: table.count),
                "tables": _mean(coverages, kept_out, lambda table: 1),
            }
            for kept_out in ("table", "rows")
        },
        "tables": [
            {"table": table.name, "rows": table.count, "table_kept_out": asdict(table.table),
             "rows_kept_out": asdict(table.rows)} for table in coverages
        ],
    }  # fmt: skip


def _mean(
    coverages: Sequence[Coverage], kept_out: str, weight: Callable[[Coverage], int]
) -> dict[str, float]:
    parts = [(weight(table), asdict(getattr(table, kept_out))) for table in coverages]
    total = sum(count for count, _ in parts)
    keys = Held.__dataclass_fields__
    return {key: sum(n * held[key] for n, held in parts) / total if total else 0.0 for key in keys}
