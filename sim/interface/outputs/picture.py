"""`--picture`: the pipeline, or the distribution of sampled steps."""

from pathlib import Path

from sim.interface.plots import SUFFIXES
from sim.results.answer import Answer

__all__ = ["HELP", "SUFFIXES", "write", "write_samples"]

HELP = "Draw the pipeline"


def write(answer: Answer, path: Path) -> None:
    """The timeline of a step; the first steps where updates are shared; of samples how times vary
    and where their loss comes from, or what is learnt."""
    from sim.interface.plots import picture

    picture.save(answer.plot(), path)


write_samples = write
