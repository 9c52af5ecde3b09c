"""`--timeline` writes every span as rows of a table."""

from pathlib import Path

from sim.config.files import atomic_write
from sim.results.answer import Answer

HELP = "Write every span as a table"
SUFFIXES = (".csv",)


def write(answer: Answer, path: Path) -> None:
    """Write the data frame of the answer's timeline."""
    frame = answer.get("timeline").to_frame()
    with atomic_write(path) as part:
        frame.to_csv(part, index=False)
