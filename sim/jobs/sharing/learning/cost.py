"""Costs of a task before it is made: the number of its weights, and the seconds of gradients.

Seconds are of the order of magnitude that one core takes, measured at batches of 32.
"""

from collections.abc import Callable
from dataclasses import dataclass

from sim.jobs.sharing.tables import Learning

_OF_WEIGHT = 2e-8  # s of an update, for some two dozen FLOP and copies
_POINTS = 400  # of a curve, at most


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCost:
    """`weights` by the size of the task, seconds for each of them and `sample` of a batch, and how
    many `rows` the data have on which the loss is taken, each with an activation a weight."""

    weights: Callable[[int], int]
    sample: float = 0.0
    rows: int = 0

    def seconds(self, size: int, batch: int, updates: float) -> float:
        """Of so many updates, and of the losses on the way."""
        samples = updates * batch + min(updates, _POINTS) * self.rows
        return self.weights(size) * (updates * _OF_WEIGHT + samples * self.sample)

    def memory(self, size: int, workers: int) -> float:
        """Bytes: every worker has weights and a gradient of its own."""
        return 8.0 * self.weights(size) * (2 * workers + self.rows)


_ALPHABET = 76  # different characters of the text that `characters` learns

COSTS = {
    "none": TaskCost(weights=lambda size: 0),
    "quadratic": TaskCost(weights=lambda size: size),
    "logistic": TaskCost(weights=lambda size: size + 1, sample=3e-9, rows=2000),
    "perceptron": TaskCost(weights=lambda size: 4 * size + 1, sample=4e-9, rows=1000),
    "digits": TaskCost(weights=lambda size: 18 * size**2 + 92 * size + 10, sample=1.6e-9, rows=360),
    "residual": TaskCost(weights=lambda size: 74 * size**2 + 47 * size + 10, sample=5e-9, rows=360),
    "characters": TaskCost(
        weights=lambda size: 64 * size**2 + (9 * _ALPHABET + 8) * size + _ALPHABET, sample=3e-10
    ),
}


def cost_of(learning: Learning | None) -> TaskCost:
    """Of the task that a table names."""
    return COSTS[learning.task if learning else "none"]
