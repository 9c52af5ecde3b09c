"""Changes of one thing: what a row's step time is to that of the first row of its study, measured
and predicted. What a table leaves open and what all its rows share cancels out.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from sim.analysis.validation.validate import ValidatedRun, ValidatedTable
from sim.config.dataclass import dataclass

CLOSE = 0.05  # of the step before: a size that counts as right


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A row of a study against the first one, `before`: by which fraction of it the step grew."""

    study: str
    before: str
    id: str
    measured: float
    predicted: float

    @property
    def signed(self) -> bool:
        """Whether the prediction is on the right side."""
        return self.measured * self.predicted > 0.0

    @property
    def close(self) -> bool:
        """Whether its size is right."""
        return abs(self.predicted - self.measured) <= CLOSE


def changes(table: ValidatedTable) -> list[Change]:
    """Changes of all studies; rows without a measured or a predicted time are in none."""
    return [change for runs in _studies(table.rows).values() for change in _of(runs)]


def summary(table: ValidatedTable) -> dict[str, Any]:
    """How many there are, on the right side, of the right size; nothing without studies."""
    found = changes(table)
    if not found:
        return {}
    return {
        "changes": len(found),
        "changes_signed": sum(change.signed for change in found),
        "changes_close": sum(change.close for change in found),
    }


def _studies(rows: Iterable[ValidatedRun]) -> Mapping[str, list[ValidatedRun]]:
    found: dict[str, list[ValidatedRun]] = defaultdict(list)
    for run in rows:
        if run.study and run.error is not None:
            found[run.study].append(run)
    return found


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
