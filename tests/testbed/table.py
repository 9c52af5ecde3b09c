"""The table of predicted, measured, error."""

import csv
import os
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Row:
    """A quantity of a check, measured in the given attempt; `bar` is the largest error allowed.

    `load` is the machine's, `stolen` the share of its processors' time that a hypervisor gave to
    other machines meanwhile.
    """

    hosts: int
    check: str
    quantity: str
    unit: str
    predicted: float
    measured: float
    bar: float
    load: float
    stolen: float
    attempt: int

    @property
    def error(self) -> float:
        """predicted / measured - 1."""
        return self.predicted / self.measured - 1.0

    @property
    def passes(self) -> bool:
        return abs(self.error) <= self.bar

    @property
    def slowed(self) -> bool:
        """Whether it misses its bar as on a slower machine: a longer time, fewer updates a second,
        or another staleness."""
        signs = {"ms": self.error < 0.0, "1/s": self.error > 0.0}
        return not self.passes and signs.get(self.unit, True)


def load() -> float:
    """Mean number of runnable processes, over the last minute."""
    return os.getloadavg()[0]


def median_error(rows: list[Row]) -> float:
    """The median of the errors' magnitudes."""
    return statistics.median(abs(row.error) for row in rows)


def text(rows: list[Row]) -> list[str]:
    """The table as lines of text."""
    width = max(len(row.check) for row in rows)
    lines = [
        f"{'hosts':>5}  {'check':<{width}}  {'predicted':>9}  {'measured':>9}  {'unit':<8}"
        f"{'error':>7}  {'bar':>5}  {'load':>4}  {'stolen':>6}"
    ]
    lines += [
        f"{row.hosts:>5}  {row.check:<{width}}  {row.predicted:>9.2f}  {row.measured:>9.2f}  "
        f"{row.unit:<8}{row.error:>+7.1%}  {row.bar:>5.0%}  {row.load:>4.1f}  {row.stolen:>6.1%}"
        f"{f'  attempt {row.attempt}' if row.attempt > 1 else ''}{'' if row.passes else '  MISSED'}"
        for row in rows
    ]
    return [*lines, f"median error {median_error(rows):.2%} of {len(rows)}"]


def write(rows: list[Row], path: Path) -> None:
    """As CSV, complete or not at all."""
    path.parent.mkdir(exist_ok=True)
    draft = path.with_suffix(".part")
    with draft.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*asdict(rows[0]), "error"])
        for row in rows:
            writer.writerow([*asdict(row).values(), round(row.error, 5)])
    draft.replace(path)
