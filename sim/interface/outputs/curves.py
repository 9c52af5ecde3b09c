"""`--curves` draws loss and accuracy over a run of workers that share updates."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sim.config.errors import InputError
from sim.config.files import atomic_write
from sim.interface.plots import SUFFIXES as PICTURES
from sim.results.answer import Answer

HELP = "Draw loss and accuracy over the run, or write it as a table"
SUFFIXES = (*PICTURES, ".csv")


def write(answer: Answer, path: Path, width: float | None = None) -> None:
    """Draw the loss against simulated seconds, samples and bytes, or write its table. Raises
    `InputError` if the run has no learning task."""
    _write([answer], path, width)


def write_samples(answer: Answer, path: Path, width: float | None = None) -> None:
    """Draw the median of all runs with a band from the lowest to the highest, or write a table."""
    _write(answer.get("runs") or (), path, width, answer.get("seed"))


def _write(runs: Sequence[Any], path: Path, width: float | None, seed: int = 0) -> None:
    from sim.analysis.samples.seeds import curves
    from sim.interface.plots import loss, picture

    if not any(run.get("curve") for run in runs):
        fault, remedy = "nothing that learns", 'set sharing.learning.task = "digits" or another'
        raise InputError("--curves", fault, remedy)
    if path.suffix == ".csv":
        with atomic_write(path) as part:
            curves(runs, seed).to_csv(part, index=False)
        return
    seeds = f", {len(runs)} seeds" if len(runs) > 1 else ""
    title = f"{runs[0].title}, {runs[0].get('task')}{seeds}"
    picture.save(loss.figure([runs], title=title), path, width)
