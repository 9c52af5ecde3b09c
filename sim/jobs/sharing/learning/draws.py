"""The rows of a data set that a worker's batch consists of."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sim.jobs.sharing.learning.task import batch_generator

Rows = NDArray[np.int64]


class DataSplit(Protocol):
    """How a task's data are divided among workers."""

    @property
    def workers(self) -> int: ...
    @property
    def unlike(self) -> float: ...
    @property
    def seed(self) -> int: ...


def drawn_rows(order: Rows, split: DataSplit, rank: int, step: int, size: int) -> Rows:
    """Draw the `size` rows of a worker's step. With chance `unlike` a row is from the worker's own
    part of `order`, a list in which similar rows are neighbours; otherwise from all rows."""
    count = len(order)
    generator = batch_generator(split.seed, rank, step)
    chosen = generator.integers(0, count, size)
    if split.unlike:
        own = (rank % split.workers + generator.random(size)) * count / split.workers
        mostly = generator.random(size) < split.unlike
        chosen = np.where(mostly, order[own.astype(int)], chosen)
    return chosen
