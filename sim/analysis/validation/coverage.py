"""How often measured step times lie within the intervals that other measurements give them.

Measurements are kept out in two ways: a whole table at a time, whose campaigns are then new to the
rest (unless another table has them), and every other row of a campaign, once the even and once the
odd ones, whose stack is then known. All tables that are not judged, the packaged ones too, stay in
evidence. Rows that measured an incident are not judged.

The share of rows within says nothing of how wide intervals are, so a proper score stands beside it:
the interval score of Gneiting and Raftery 2007, "Strictly proper scoring rules, prediction, and
estimation", JASA 102, equation 43, of log(step time): width + 2 / alpha x how far outside, which is
smallest for the true quantiles. 0.3 is what an interval 35 % wide that is never left scores.
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

BAR = (0.85, 0.95)  # what the 90 % intervals should cover


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Runs held to their intervals: the share within, mean width (high / low), mean interval
    score, and the mean distance |log(measured / expected)|."""

    covered: float
    width: float
    score: float
    off: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Of a table: `table` and `rows` name what was kept out of the evidence."""

    name: str
    count: int
    table: Held
    rows: Held


def coverage(tables: Sequence[ValidatedTable], packaged: Evidence | None = None) -> list[Coverage]:
    """Per table with measured rows that were predicted; beside them stands the `packaged` evidence,
    `sim.uncertainty.evidence` unless given, of other tables."""
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
    """The same with a kind of work left out at a time, of these tables and of the `packaged`
    evidence: how sure a prediction is of a kind that nobody measured."""
    timed = [_timed(table) for table in tables]
    shown = (packaged or evidence()).replaced(spreads(timed), tables={one.name for one in timed})
    runs = [run for table in timed for run in table.rows if run.campaign]
    found = []
    for kind in sorted({run.campaign.work for run in runs if run.campaign}):
        known = Evidence(spreads=tuple(one for one in shown.spreads if one.work != kind))
        of_kind = [run for run in runs if run.campaign and run.campaign.work == kind]
        held = _held(_judged(of_kind, known))
        found.append({"kind": kind, "rows": len(of_kind), **asdict(held)})
    return found


def _timed(table: ValidatedTable) -> ValidatedTable:
    """Its rows that are judged, those of a campaign together: some tables alternate precisions."""
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
    """Measured step times and the intervals that the evidence gives."""
    errors = {run.campaign: known.errors(run.campaign) for run in runs if run.campaign}
    return [
        (run.measured or 0.0, interval(run.predicted or 0.0, errors[run.campaign]))
        for run in runs
        if run.campaign
    ]


def _held(judged: Sequence[tuple[float, Interval]]) -> Held:
    return Held(
        covered=fmean(own.low <= measured <= own.high for measured, own in judged),
        width=fmean(own.high / own.low for _, own in judged),
        score=fmean(score(measured, own) for measured, own in judged),
        off=fmean(abs(log(measured / own.expected)) for measured, own in judged),
    )


def score(measured: float, own: Interval) -> float:
    """The interval score of log(step time); smaller is better."""
    outside = max(log(own.low / measured), log(measured / own.high), 0.0)
    return log(own.high / own.low) + 2.0 / (1.0 - own.level) * outside


def summary(coverages: Sequence[Coverage]) -> dict[str, Any]:
    """The keys of `--json`: by rows of all tables together, and the mean of the tables."""
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
            {"table": one.name, "rows": one.count, "table_kept_out": asdict(one.table),
             "rows_kept_out": asdict(one.rows)} for one in coverages
        ],
    }  # fmt: skip


def _mean(
    coverages: Sequence[Coverage], kept_out: str, weight: Callable[[Coverage], int]
) -> dict[str, float]:
    parts = [(weight(table), asdict(getattr(table, kept_out))) for table in coverages]
    total = sum(count for count, _ in parts)
    keys = Held.__dataclass_fields__
    return {key: sum(n * held[key] for n, held in parts) / total if total else 0.0 for key in keys}
