"""How far measured step times are from predicted ones, by stack and device: the basis of intervals.

`sim validate TABLES --spread FILE` writes it; `sim.uncertainty.evidence` reads every file of
`topologies/validated`, so a file of your own runs there narrows your own intervals.
"""

from collections.abc import Iterable, Iterator, Sequence
from json import dumps
from pathlib import Path
from textwrap import fill

import numpy as np

from sim.config.files import atomic_write
from sim.uncertainty.evidence import Spread
from sim.validation.validate import ValidatedRun, ValidatedTable

_FIVE_TO_95 = 2.0 * 1.6449  # standard deviations between them, of a normal law
_HEAD = """\
# How far measured step times are from predicted ones, by stack and device: written by
# `sim validate TABLES --spread FILE`, read by sim.uncertainty.evidence. median: of log(measured /
# predicted); sigma: half its span from the 5th to the 95th percentile over 1.645.
# Rows of each table: {tables}.
"""


def spreads(tables: Iterable[ValidatedTable]) -> list[Spread]:
    """A spread for each stack and device of every table.

    Rows without a prediction do not count, nor those that measured an incident.
    """
    return [_spread(table.name, group) for table in tables for group in _groups(table.rows)]


def _groups(runs: Iterable[ValidatedRun]) -> Iterator[list[ValidatedRun]]:
    groups: dict[tuple[str, str], list[ValidatedRun]] = {}
    for run in runs:
        if run.error is not None and not run.incident:
            groups.setdefault((run.stack, run.device), []).append(run)
    yield from groups.values()


def _spread(table: str, runs: Sequence[ValidatedRun]) -> Spread:
    logs = np.log([(run.measured or 1.0) / (run.predicted or 1.0) for run in runs])
    low, middle, high = np.quantile(logs, (0.05, 0.5, 0.95))
    return Spread(
        table=table,
        stack=runs[0].stack,
        device=runs[0].device,
        topologies=tuple(sorted({run.topology for run in runs})),
        rows=len(runs),
        median=float(middle),
        sigma=float(high - low) / _FIVE_TO_95,
    )


def write(tables: Sequence[ValidatedTable], path: Path) -> None:
    """The spreads of tables as a file of `topologies/validated`."""
    counts = ", ".join(f"{table.name} {len(table.rows)}" for table in tables)
    names = fill(counts, 100, subsequent_indent="# ", initial_indent=" " * 22).lstrip()
    blocks = [_HEAD.format(tables=names), *map(_block, spreads(tables))]
    with atomic_write(path) as part:
        part.write_text("\n".join(blocks), encoding="utf-8")


def _block(spread: Spread) -> str:
    return (
        f"[[spread]]\ntable = {dumps(spread.table)}\nstack = {dumps(spread.stack)}\n"
        f"device = {dumps(spread.device)}\ntopologies = {dumps(list(spread.topologies))}\n"
        f"rows = {spread.rows}\nmedian = {spread.median:.4f}\nsigma = {spread.sigma:.4f}\n"
    )
