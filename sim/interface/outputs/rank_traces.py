"""`--rank-traces`: a trace for each role, as profilers write one for each rank."""

from pathlib import Path

from sim.results.answer import Answer

HELP = "Write a trace for each role, as HolisticTraceAnalysis reads them"
SUFFIXES = ()  # a folder


def write(answer: Answer, path: Path) -> None:
    """The traces are named after the lowest rank of their roles."""
    from sim.interface.formats import perfetto

    perfetto.write_each(answer.get("timeline"), path)
