"""What receivers know of senders: compressed messages hold what has changed since the last one."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.collectives.compression import Compression
from sim.sharing.worker import Worker

Vector = NDArray[np.float64]


class Replicas:
    """Copies of the senders' weights that receivers keep up to date: x' <- x' + C(x - x').

    CHOCO-SGD (Koloskova, Stich and Jaggi 2019, algorithm 2). Both sides know the copy, so what
    compression leaves out is in the next difference and the mean of all workers is kept. `rate` is
    the paper's consensus step size: the coarser the compression, the smaller it has to be.

    >>> replicas = Replicas(np.zeros(2), Compression(kind="topk", ratio=0.5), rate=1.0, seed=0)
    >>> replicas.told(0, 1, np.array([3.0, 2.0]), 0), replicas.told(0, 1, np.array([3.0, 2.0]), 1)
    (array([3., 0.]), array([3., 2.]))
    """

    def __init__(self, start: Vector, compression: Compression, *, rate: float, seed: int) -> None:
        self._start, self._compression = start, compression
        self._rate, self._seed = rate, seed
        self._known: dict[tuple[int, Any], Vector] = {}

    def told(self, source: int, target: Any, weights: Vector, step: int) -> Vector:
        """What a target knows of a source's weights after a message about them."""
        if self._compression.kind == "none":
            return weights
        known = self._known.get((source, target), self._start)
        news = self._compression.lossy(weights - known, (self._seed, step))
        self._known[source, target] = known + news
        return self._known[source, target]

    def pulled(
        self, me: Worker, row: dict[int, float], known: Vector, theirs: dict[int, Vector]
    ) -> Vector:
        """x_i + rate (sum_j W_ij x'_j - x'_i); x' is x itself where nothing is compressed."""
        mean = mixed(row, me.rank, known, theirs)
        if known is me.weights and self._rate == 1.0:
            return mean
        return me.weights + self._rate * (mean - known)


def mixed(row: dict[int, float], own: int, mine: Vector, theirs: dict[int, Vector]) -> Vector:
    """sum_j W_ij x_j; the weight of those that are missing is the worker's own."""
    kept = row[own] + sum(weight for j, weight in row.items() if j != own and j not in theirs)
    total = kept * mine
    for j in sorted(theirs):
        total = total + row[j] * theirs[j]
    return total
