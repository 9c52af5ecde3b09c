"""`--curves`: loss and right answers on the way, where workers share updates."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sim.config.errors import InputError
from sim.config.files import atomic_write
from sim.plots import SUFFIXES as PICTURES

if TYPE_CHECKING:
    from sim.results.outcome import Outcome
    from sim.results.result import Result
    from sim.samples.answer import Samples
    from sim.samples.sharing import SharingSamples

HELP = "Draw what is learnt on the way, or write it as a table"
SUFFIXES = (*PICTURES, ".csv")


def write(result: "Result | Outcome", path: Path) -> None:
    """A line against simulated seconds, samples and bytes. Raises `InputError` where nothing is
    learnt."""
    from sim.results.outcome import Outcome

    _write([result] if isinstance(result, Outcome) else [], path, result.scenario)


def write_samples(samples: "Samples | SharingSamples", path: Path) -> None:
    """The median of all runs and a band from the lowest to the highest."""
    from sim.samples.sharing import SharingSamples

    runs = samples.runs if isinstance(samples, SharingSamples) else ()
    _write(runs, path, samples.scenario, samples.seed)


def _write(runs: "Sequence[Outcome]", path: Path, scenario: str, seed: int = 0) -> None:
    from sim.plots import loss, picture
    from sim.samples.sharing import curves

    if not any(run.curve for run in runs):
        what, remedy = "has nothing that learns", 'set sharing.learning.task = "digits" or another'
        raise InputError(scenario, what, remedy)
    if path.suffix == ".csv":
        with atomic_write(path) as part:
            curves(runs, seed).to_csv(part, index=False)
        return
    seeds = f", {len(runs)} seeds" if len(runs) > 1 else ""
    title = f"{scenario}: {runs[0].method}, {runs[0].task}{seeds}"
    picture.save(loss.figure([runs], title=title), path)
