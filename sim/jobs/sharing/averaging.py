"""Collectives that average over all workers, for methods that average synchronously."""

from typing import Any

import numpy as np

from sim.collectives.compression import Compression
from sim.engine.live_cluster import Process
from sim.jobs.sharing.barrier import Action, Barrier
from sim.jobs.sharing.learning.task import Vector
from sim.jobs.sharing.worker import EVERYTHING, Worker, mean
from sim.jobs.sharing.worker_pool import WorkerPool
from sim.jobs.sharing.workload import TimedLayer


class Averaging:
    """Averages over the network, as the collective library and the compression compute them.

    Some compressions compress a sum again, and so lose a further part of it. With error feedback,
    the rank that made the sum keeps this part for the next sum (the "server error" of Tang et al.
    2021). `elements` is the averaged part of the weights; `compression` replaces the plan's
    compression.
    """

    def __init__(
        self, pool: WorkerPool, elements: slice = EVERYTHING, compression: Compression | None = None
    ) -> None:
        self.pool = pool
        self.compression = compression or pool.workers[0].compression
        self._error: Vector = np.zeros_like(pool.task.start[elements])
        self._rounds = 0

    def sent(self, part: TimedLayer, ranks: list[int]) -> Process:
        """Run the collectives that average a part of the model over these ranks."""
        endpoints = [self.pool.workers[rank].endpoint for rank in sorted(ranks)]
        work, cluster = self.pool.workers[0].workload, self.pool.cluster
        sums = self.compression.sums(part.parameters, work.width, len(endpoints), part.shapes)
        for kind, size in sums:
            yield cluster.collective(kind, size, endpoints, in_pieces=work.in_pieces)

    def mean(self, values: dict[int, Vector]) -> Vector:
        """Return the mean of the values as every worker reads it after the collectives."""
        average = mean(values)
        if self.compression.in_rounds and average.size:
            self._rounds += 1
            seed = (self.pool.seed, self._rounds)
            average, self._error = self.compression.encode(average, self._error, seed)
        return average

    def of(self, part: TimedLayer) -> Action:
        """The action of a barrier: average the workers' values of a part of the model."""

        def average(_: Any, values: dict[int, Vector]) -> Process:
            yield from self.sent(part, list(values))
            return self.mean(values)

        return average

    def messages(self, barrier: Barrier) -> int:
        """How many compressed messages each worker decodes to read a mean."""
        return self.compression.read(len(barrier.members))


def count_update(
    worker: Worker,
    pool: WorkerPool,
    barrier: Barrier,
    steps: int = 1,
    *,
    equal: bool = True,
) -> None:
    """Count once an update that all workers make together, after `steps` steps of each.

    The record takes the loss on this worker's weights if all workers then have `equal` weights.
    Otherwise it takes the loss on the mean weights, after all workers have made the update."""
    worker.version += 1
    if worker.version > pool.version:
        pool.version = worker.version
        batches = sum(pool.workers[rank].workload.batch for rank in barrier.members)
        weights = (lambda: worker.weights) if equal else pool.average
        pool.record.update(0, steps * batches, weights, settled=not equal)
