"""How well are the effects of changes predicted? The measured and the predicted change compare the
step times of a row and of the first row of its study: (row / first row) - 1. Values that a table
leaves open, and properties that all its rows share, cancel out."""

from collections.abc import Iterable, Mapping
from typing import Any

from sim.analysis.validation.validate import ValidatedRun, ValidatedTable
from sim.config.dataclass import dataclass
from sim.config.grouped import grouped

CLOSE = 0.05  # share of the first step; a change predicted to within this share counts as right


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The change from the first row of a study (`before`) to another row: the fraction by which the
    step time grew."""

    study: str
    before: str
    id: str
    measured: float
    predicted: float

    @property
    def signed(self) -> bool:
        """Whether the predicted change has the sign of the measured change."""
        return self.measured * self.predicted > 0.0

    @property
    def close(self) -> bool:
        """Whether the predicted change has the right size."""
        return abs(self.predicted - self.measured) <= CLOSE


def changes(table: ValidatedTable) -> list[Change]:
    """Return the changes of all studies, without rows that lack a measured or predicted time."""
    return [change for runs in _studies(table.rows).values() for change in _of(runs)]


def summary(table: ValidatedTable) -> dict[str, Any]:
    """Return the numbers of changes, right signs and right sizes; empty without studies."""
    found = changes(table)
    if not found:
        return {}
    return {
        "changes": len(found),
        "changes_signed": sum(change.signed for change in found),
        "changes_close": sum(change.close for change in found),
    }


def _studies(rows: Iterable[ValidatedRun]) -> Mapping[str, list[ValidatedRun]]:
    return grouped((run.study, run) for run in rows if run.study and run.error is not None)


def _of(runs: list[ValidatedRun]) -> Iterable[Change]:
    first = runs[0]
    for run in runs[1:]:
        yield Change(
            study=run.study,
            before=first.id,
            id=run.id,
            measured=(run.measured or 0.0) / (first.measured or 1.0) - 1.0,
            predicted=(run.predicted or 0.0) / (first.predicted or 1.0) - 1.0,
        )
