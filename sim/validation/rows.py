"""Every row's prediction as CSV: seconds, bytes and fractions."""

from collections.abc import Sequence
from pathlib import Path

from sim.config.files import atomic_write
from sim.validation.validate import ValidatedTable

_COLUMNS = (
    "id", "measured", "predicted", "error", "memory_measured", "memory_predicted", "memory_error",
    "fits_measured", "fits_predicted", "incident", "reason",
)  # fmt: skip


def write(tables: Sequence[ValidatedTable], path: Path) -> None:
    """One line a row. Raises `InputError` where the file cannot be written."""
    import pandas as pd

    lines = [
        {
            "table": table.name,
            **{column: getattr(run, column) for column in _COLUMNS},
            "step_low": run.low,
            "step_high": run.high,
        }
        for table in tables
        for run in table.rows
    ]
    with atomic_write(path) as part:
        pd.DataFrame(lines).to_csv(part, index=False)
