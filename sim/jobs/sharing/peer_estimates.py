"""Receivers' estimates of senders: a compressed message holds the changes since the last
message."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.collectives.compression import Compression, Shapes
from sim.jobs.sharing.worker import Worker

Vector = NDArray[np.float64]


class PeerEstimates:
    """Estimates of the senders' weights that their messages keep up to date: x' <- x' + C(x - x').

    CHOCO-SGD (Koloskova, Stich and Jaggi 2019). Both sides know the estimate, so what
    compression leaves out is in the next difference and the mean of all workers is kept. `rate` is
    the paper's consensus step size: the coarser the compression, the smaller it has to be.

    >>> topk = Compression(kind="topk", ratio=0.5)
    >>> estimates = PeerEstimates(np.zeros(2), topk, rate=1.0, seed=0)
    >>> weights = np.array([3.0, 2.0])
    >>> estimates.updated(0, 1, weights, 0), estimates.updated(0, 1, weights, 1)
    (array([3., 0.]), array([3., 2.]))
    """

    def __init__(
        self,
        start: Vector,
        compression: Compression,
        *,
        rate: float,
        seed: int,
        shapes: Shapes = (),
    ) -> None:
        self._start, self._compression, self._shapes = start, compression, shapes
        self._rate, self._seed = rate, seed
        self._estimates: dict[tuple[int, Any], Vector] = {}

    def updated(self, source: int, target: Any, weights: Vector, step: int) -> Vector:
        """A target's estimate of a source's weights after a message about them."""
        if self._compression.kind == "none":
            return weights
        before = self._estimates.get((source, target), self._start)
        difference = self._compression.lossy(weights - before, (self._seed, step), self._shapes)
        self._estimates[source, target] = before + difference
        return self._estimates[source, target]

    def averaged(
        self, worker: Worker, row: dict[int, float], vector: Vector, peers: dict[int, Vector]
    ) -> Vector:
        """x_i + rate (sum_j W_ij x'_j - x'_i); x' is x itself where nothing is compressed."""
        mean = mixed(row, worker.rank, vector, peers)
        if vector is worker.weights and self._rate == 1.0:
            return mean
        return worker.weights + self._rate * (mean - vector)


def mixed(row: dict[int, float], rank: int, vector: Vector, peers: dict[int, Vector]) -> Vector:
    """sum_j W_ij x_j; the weight of peers that are missing is the worker's own."""
    kept = row[rank] + sum(weight for j, weight in row.items() if j != rank and j not in peers)
    total = kept * vector
    for j in sorted(peers):
        total = total + row[j] * peers[j]
    return total
