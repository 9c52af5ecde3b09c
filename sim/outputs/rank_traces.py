"""`--rank-traces`: a trace for each role, as profilers write one for each rank."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sim.results.outcome import Outcome
    from sim.results.result import Result

HELP = "Write a trace for each role, as HolisticTraceAnalysis reads them"
SUFFIXES = ()  # a folder


def write(result: "Result | Outcome", path: Path) -> None:
    """The traces are named after the lowest rank of their roles."""
    from sim.formats import perfetto

    perfetto.write_each(result.timeline, path)
