"""How far measured step times are from predicted times, by campaign. Intervals rest on these
spreads.

`sim validate TABLES --spread FILE` writes the spreads. `sim.uncertainty.evidence` reads every file
of `topologies/validated`, so a file there with your own runs narrows your own intervals.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from json import dumps
from math import log
from pathlib import Path
from statistics import median
from typing import Any

from sim.analysis.validation.validate import ValidatedRun, ValidatedTable
from sim.config.files import atomic_write
from sim.config.grouped import grouped
from sim.uncertainty import student
from sim.uncertainty.evidence import Campaign, Spread

_HEAD = """\
# How far measured step times are from predicted times, by campaign: written by
# `sim validate TABLES --spread FILE`, read by sim.uncertainty.evidence. `location` and `scale` are
# those of a Student's t with four degrees of freedom, fitted to log(measured / predicted). `apart`
# is the scale of the distances from the median of a job's layouts, and `layouts` their number.

spreads = [
{spreads}
]
"""


def spreads(tables: Iterable[ValidatedTable]) -> list[Spread]:
    """Return a spread for each campaign of every table.

    Rows without a prediction, and rows that measured an incident, do not count.
    """
    return [
        _spread(table.name, campaign, runs)
        for table in tables
        for campaign, runs in _campaigns(table.rows).items()
    ]


def error(run: ValidatedRun) -> float:
    """log(measured / predicted)."""
    return log((run.measured or 1.0) / (run.predicted or 1.0))


def counts(run: ValidatedRun) -> bool:
    """Return whether a run shows an error: it was predicted, and no incident disturbed it."""
    return run.error is not None and not run.incident


def _campaigns(runs: Iterable[ValidatedRun]) -> dict[Campaign, list[ValidatedRun]]:
    return grouped((run.campaign, run) for run in runs if counts(run) and run.campaign)


def _spread(table: str, campaign: Campaign, runs: Sequence[ValidatedRun]) -> Spread:
    location, scale = student.fit([error(run) for run in runs])
    left, jobs = _beside_their_jobs(runs)
    return Spread(
        **asdict(campaign),
        table=table,
        rows=len(runs),
        location=location,
        scale=scale,
        layouts=len(left),
        apart=student.fit(left, estimated=jobs)[1] if left else 0.0,
    )


def _beside_their_jobs(runs: Sequence[ValidatedRun]) -> tuple[list[float], int]:
    """Return each error minus the median error of its job's layouts, and the number of such
    jobs."""
    jobs = grouped((run.job, error(run)) for run in runs)
    several = [errors for errors in jobs.values() if len(errors) > 1]
    return [err - median(errors) for errors in several for err in errors], len(several)


def write(tables: Sequence[ValidatedTable], path: Path) -> None:
    """Write the spreads of tables as a file of `topologies/validated`."""
    lines = "\n".join(f"  {{{_line(spread)}}}," for spread in spreads(tables))
    with atomic_write(path) as part:
        part.write_text(_HEAD.format(spreads=lines), encoding="utf-8")


def _line(spread: Spread) -> str:
    first = ("table", "stack", "device", "topology", "precision", "work")
    values = asdict(spread)
    keys = (*first, *(key for key in values if key not in first))
    return ", ".join(f"{key} = {_value(values[key])}" for key in keys)


def _value(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else dumps(value)
