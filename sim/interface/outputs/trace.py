"""`--trace` writes the timeline for Perfetto."""

from pathlib import Path

from sim.results.answer import Answer

HELP = "Write a trace for Perfetto (Chrome trace JSON)"
SUFFIXES = (".json", ".gz")


def write(answer: Answer, path: Path) -> None:
    """Write every role and the memory of every stage; compressed if the path ends in .gz."""
    from sim.interface.formats import perfetto

    perfetto.write(answer.get("timeline"), path, answer.get("memory_curves") or ())
