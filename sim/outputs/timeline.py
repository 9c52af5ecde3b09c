"""`--timeline`: every span as a row of a table."""

from pathlib import Path
from typing import TYPE_CHECKING

from sim.config.files import atomic_write

if TYPE_CHECKING:
    from sim.results.outcome import Outcome
    from sim.results.result import Result

HELP = "Write every span as a table"
SUFFIXES = (".csv",)


def write(result: "Result | Outcome", path: Path) -> None:
    """The result's data frame."""
    frame = result.to_frame()
    with atomic_write(path) as part:
        frame.to_csv(part, index=False)
