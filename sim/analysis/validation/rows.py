"""Every row's prediction: seconds, bytes and fractions."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sim.analysis.validation.validate import ValidatedTable

if TYPE_CHECKING:
    import pandas as pd

_COLUMNS = (
    "id", "measured", "predicted", "error", "memory_measured", "memory_predicted", "memory_error",
    "fits_measured", "fits_predicted", "incident", "reason",
)  # fmt: skip


def frame(tables: Sequence[ValidatedTable]) -> "pd.DataFrame":
    """Return a line for each row of the tables."""
    import pandas as pd

    return pd.DataFrame(
        [
            {
                "table": table.name,
                **{column: getattr(run, column) for column in _COLUMNS},
                "step_low": run.low,
                "step_high": run.high,
            }
            for table in tables
            for run in table.rows
        ]
    )
