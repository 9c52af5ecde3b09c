"""How far measured step times are from predicted ones, by stack and device: what intervals rest on.

`sim validate TABLES --spread FILE` writes it; `sim.uncertainty.evidence` reads every file of
`topologies/validated`, so a file of one's own runs there narrows one's own intervals.
"""

from collections.abc import Iterable, Iterator, Sequence
from json import dumps
from pathlib import Path
from textwrap import fill

import numpy as np

from sim.config.files import whole
from sim.uncertainty.evidence import Spread
from sim.validation.validate import Row, Table

_FIVE_TO_95 = 2.0 * 1.6449  # standard deviations between them, of a normal law
_HEAD = """\
# How far measured step times are from predicted ones, by stack and device: written by
# `sim validate TABLES --spread FILE`, read by sim.uncertainty.evidence. median: of log(measured /
# predicted); sigma: half its span from the 5th to the 95th percentile over 1.645.
# Rows of each table: {tables}.
"""


def spreads(tables: Iterable[Table]) -> list[Spread]:
    """One for each stack and device of every table; rows that were not simulated do not count."""
    return [_spread(table.name, group) for table in tables for group in _groups(table.rows)]


def _groups(rows: Iterable[Row]) -> Iterator[list[Row]]:
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.error is not None:
            found.setdefault((row.stack, row.device), []).append(row)
    yield from found.values()


def _spread(table: str, rows: Sequence[Row]) -> Spread:
    logs = np.log([(row.measured or 1.0) / (row.predicted or 1.0) for row in rows])
    low, middle, high = np.quantile(logs, (0.05, 0.5, 0.95))
    return Spread(
        table=table,
        stack=rows[0].stack,
        device=rows[0].device,
        topologies=tuple(sorted({row.topology for row in rows})),
        rows=len(rows),
        median=float(middle),
        sigma=float(high - low) / _FIVE_TO_95,
    )


def write(tables: Sequence[Table], path: Path) -> None:
    """The spreads of tables as a file of `topologies/validated`."""
    counts = ", ".join(f"{one.name} {len(one.rows)}" for one in tables)
    names = fill(counts, 100, subsequent_indent="# ", initial_indent=" " * 22).lstrip()
    blocks = [_HEAD.format(tables=names), *map(_block, spreads(tables))]
    with whole(path) as part:
        part.write_text("\n".join(blocks), encoding="utf-8")


def _block(one: Spread) -> str:
    return (
        f"[[spread]]\ntable = {dumps(one.table)}\nstack = {dumps(one.stack)}\n"
        f"device = {dumps(one.device)}\ntopologies = {dumps(list(one.topologies))}\n"
        f"rows = {one.rows}\nmedian = {one.median:.4f}\nsigma = {one.sigma:.4f}\n"
    )
