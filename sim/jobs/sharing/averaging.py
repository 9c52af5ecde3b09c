"""The mean over all workers, by collectives: for methods that average synchronously."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from sim.collectives.compression import Compression
from sim.engine.live_cluster import Process
from sim.jobs.sharing.barrier import Barrier
from sim.jobs.sharing.worker import EVERYTHING, Worker, mean
from sim.jobs.sharing.worker_pool import WorkerPool
from sim.jobs.sharing.workload import TimedLayer

Vector = NDArray[np.float64]


class Averaging:
    """Averages over the network, as the collective library and the compression do it.

    Sums that are encoded again lose something a second time, which with error feedback waits at
    the rank that added them up (the "server error" of Tang et al. 2021). What is
    averaged may be some `elements` of the weights, and go by another `compression` than the plan's.
    """

    def __init__(
        self, pool: WorkerPool, elements: slice = EVERYTHING, compression: Compression | None = None
    ) -> None:
        self.pool = pool
        self.compression = compression or pool.workers[0].compression
        self._error: Vector = np.zeros_like(pool.task.start[elements])
        self._rounds = 0

    def sent(self, part: TimedLayer, ranks: list[int]) -> Process:
        """The collectives for a part of the model."""
        endpoints = [self.pool.workers[rank].endpoint for rank in sorted(ranks)]
        work, cluster = self.pool.workers[0].workload, self.pool.cluster
        sums = self.compression.sums(part.parameters, work.width, len(endpoints), part.shapes)
        for kind, size in sums:
            yield cluster.collective(kind, size, endpoints, in_pieces=work.in_pieces)

    def mean(self, values: dict[int, Vector]) -> Vector:
        """The weights that every worker reads then."""
        average = mean(values)
        if self.compression.in_rounds and average.size:
            self._rounds += 1
            seed = (self.pool.seed, self._rounds)
            average, self._error = self.compression.encode(average, self._error, seed)
        return average

    def messages(self, barrier: Barrier) -> int:
        """How many compressed messages everyone reads."""
        return self.compression.read(len(barrier.members))


def count_update(
    worker: Worker,
    pool: WorkerPool,
    barrier: Barrier,
    steps: int = 1,
    weights: Callable[[], Vector] | None = None,
) -> None:
    """One update of all workers, from so many steps of each, counted once; where they do not all
    have the same weights then, these are what is looked at."""
    worker.version += 1
    if worker.version > pool.version:
        pool.version = worker.version
        batches = sum(pool.workers[rank].workload.batch for rank in barrier.members)
        pool.record.update(0, steps * batches, weights or (lambda: worker.weights))
