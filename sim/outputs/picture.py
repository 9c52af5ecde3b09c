"""`--picture`: the pipeline, or the distribution of sampled steps."""

from pathlib import Path
from typing import TYPE_CHECKING

from sim.plots import SUFFIXES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from sim.results.outcome import Outcome
    from sim.results.result import Result
    from sim.samples.answer import Samples
    from sim.samples.sharing import SharingSamples

__all__ = ["HELP", "SUFFIXES", "figure", "write", "write_samples"]

HELP = "Draw the pipeline"


def write(result: "Result | Outcome", path: Path) -> None:
    """The timeline of a step; the first steps where updates are shared."""
    from sim.plots import picture

    picture.save(figure(result), path)


def write_samples(samples: "Samples | SharingSamples", path: Path) -> None:
    """Step times, and where their loss comes from; what is learnt where updates are shared."""
    from sim.outputs import curves
    from sim.plots import picture
    from sim.plots import samples as plot
    from sim.samples.answer import Samples

    if not isinstance(samples, Samples):
        return curves.write_samples(samples, path)
    picture.save(plot.figure(samples), path)


def figure(result: "Result | Outcome") -> "Figure":
    """What `write` draws."""
    from sim.plots import pipeline
    from sim.results.result import Result

    if isinstance(result, Result):
        return pipeline.figure(result.timeline, title=result.scenario)
    title = f"{result.scenario}: {result.method}"
    return pipeline.figure(result.excerpt, title=title, shown=result.excerpt_name)
