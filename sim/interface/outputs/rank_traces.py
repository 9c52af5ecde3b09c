"""`--rank-traces` writes a trace for each role (ranks that do the same), as profilers do for each
rank."""

from pathlib import Path

from sim.results.answer import Answer

HELP = "Write a trace for each role, as HolisticTraceAnalysis reads them"
SUFFIXES = ()  # a folder


def write(answer: Answer, path: Path) -> None:
    """Write the traces; each is named after the lowest rank of its role."""
    from sim.interface.formats import perfetto

    perfetto.write_each(answer.get("timeline"), path)
