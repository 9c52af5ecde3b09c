"""`--timeline` writes the pieces of every span as a table."""

from pathlib import Path

from sim.config.files import atomic_write
from sim.results.answer import Answer

HELP = "Write the pieces of every span, by cause, as a table"
SUFFIXES = (".csv",)


def write(answer: Answer, path: Path) -> None:
    """Write the data frame of the answer's timeline."""
    from sim.engine.pieces import frame_of  # imports pandas, which takes long to load

    frame = frame_of(answer.get("timeline"))
    with atomic_write(path) as part:
        frame.to_csv(part, index=False)
