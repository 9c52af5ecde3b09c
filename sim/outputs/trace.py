"""`--trace`: the timeline for Perfetto."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sim.results.outcome import Outcome
    from sim.results.result import Result

HELP = "Write a trace for Perfetto (Chrome trace JSON)"
SUFFIXES = (".json", ".gz")


def write(result: "Result | Outcome", path: Path) -> None:
    """Every role, and the memory of every stage; compressed where the file ends in .gz."""
    from sim.formats import perfetto
    from sim.results.result import Result

    memory = result.memory if isinstance(result, Result) else ()
    perfetto.write(result.timeline, path, memory)
