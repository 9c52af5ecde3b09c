"""A task: weights to start from, gradients of a worker's own batches, and the loss.

A gradient's noise or batch depends only on the seed, the worker and its step. It does not depend on
the order in which a simulation asks for gradients.
"""

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Rows = NDArray[np.int64]  # numbers of rows of a data set


class LearningTask(Protocol):
    """The questions that a simulation asks of a task. A task may also have `shapes`, the shapes of
    its layers (a vector's length, a matrix's rows and columns, or more). It may have a method
    `accuracy`: the share of right answers on the data of `loss`."""

    @property
    def name(self) -> str: ...

    @property
    def start(self) -> Vector:
        """The weights with which every worker begins."""

    def gradient(self, weights: Vector, rank: int, step: int) -> Vector:
        """The gradient on the batch of a worker's step. Its value may be computed later
        (`sim.jobs.sharing.learning.deferred`). Weights are never changed in place."""

    def loss(self, weights: Vector) -> float:
        """The loss on all data, or on held-out data."""


def shapes(task: LearningTask) -> tuple[tuple[int, ...], ...]:
    """The shapes of the layers of a task's weights; empty if the task has no layers."""
    found: tuple[tuple[int, ...], ...] = getattr(task, "shapes", ())
    return found


def accuracy(task: LearningTask, weights: Vector) -> float | None:
    """The share of right answers; None if the task does not classify."""
    share: Callable[[Vector], float | None] = getattr(task, "accuracy", lambda weights: None)
    return share(weights)


class NoTask:
    """A task without weights, for a simulation of times alone."""

    name = "nothing"
    start: Vector = np.zeros(0)

    def gradient(self, weights: Vector, rank: int, step: int) -> Vector:
        return weights

    def loss(self, weights: Vector) -> float:
        return 0.0


def batch_generator(seed: int, rank: int, step: int) -> np.random.Generator:
    """The random generator that draws the data of a worker's batch in a step."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, rank, step))))


class DataSplit(Protocol):
    """How a task's data are divided among workers."""

    @property
    def workers(self) -> int: ...
    @property
    def unlike(self) -> float: ...
    @property
    def seed(self) -> int: ...


def drawn_rows(order: Rows, split: DataSplit, rank: int, step: int, size: int) -> Rows:
    """Draw the `size` rows of a worker's step. With probability `unlike`, a row comes from the
    worker's own part of `order`, otherwise from all rows. In `order`, similar rows are
    neighbours."""
    count = len(order)
    generator = batch_generator(split.seed, rank, step)
    chosen = generator.integers(0, count, size)
    if split.unlike:
        positions = (rank % split.workers + generator.random(size)) * count / split.workers
        mostly = generator.random(size) < split.unlike
        chosen = np.where(mostly, order[positions.astype(int)], chosen)
    return chosen
