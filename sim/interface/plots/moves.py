"""Moves of a job: memory of the fullest GPU against samples a second and GPU."""

from typing import TYPE_CHECKING

from sim.analysis.explanation.moves import Moves

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_GIB = 2.0**30


def figure(answer: Moves) -> "Figure":
    """A point for each move, a colour for each world."""
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(7.0, 4.5), layout="constrained")
    axes = drawn.add_subplot()
    for gpus in sorted({move.gpus for move in answer.moves}):
        own = [move for move in answer.moves if move.gpus == gpus]
        sizes = [move.memory / _GIB for move in own]
        axes.scatter(sizes, [move.rate for move in own], label=f"{gpus:,} GPUs")
    if capacity := answer.result.get("capacity"):
        axes.axvline(capacity / _GIB, color="black", linewidth=0.8)
    axes.set_xlabel("memory of the fullest GPU, GiB")
    axes.set_ylabel("samples a second and GPU")
    axes.set_title(answer.title, fontsize="medium")
    axes.legend()
    return drawn
