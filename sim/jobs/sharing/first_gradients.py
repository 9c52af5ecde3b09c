"""Rounds of gradients that a server waits for, of all workers or of the first to come."""

import numpy as np
from numpy.typing import NDArray

from sim.engine.live_cluster import Event
from sim.jobs.sharing.worker import mean
from sim.jobs.sharing.worker_pool import WorkerPool

Vector = NDArray[np.float64]


def apply_mean(pool: WorkerPool, gradients: dict[int, Vector]) -> None:
    batches = sum(pool.workers[rank].workload.batch for rank in gradients)
    pool.server.merge(mean(gradients), read=pool.server.version, samples=batches)


class FirstGradients:
    """Gradients of one round, until all workers that are left but `backup` have added theirs."""

    def __init__(self, pool: WorkerPool, backup: int) -> None:
        self.pool, self.backup = pool, backup
        self.members = {worker.rank for worker in pool.workers}
        self.collected: dict[int, Vector] = {}
        self.complete = pool.cluster.event()
        pool.on_loss(self.leave)

    def add(self, rank: int, gradient: Vector) -> Event:
        """Fires when the round is complete."""
        self.collected[rank] = gradient
        this_round = self.complete
        self._apply_if_enough()
        return this_round

    def leave(self, rank: int) -> None:
        self.members.discard(rank)
        self._apply_if_enough()

    def _apply_if_enough(self) -> None:
        if self.collected and len(self.collected) >= len(self.members) - self.backup:
            apply_mean(self.pool, self.collected)
            self.collected = {}
            complete, self.complete = self.complete, self.pool.cluster.event()
            complete.succeed()
