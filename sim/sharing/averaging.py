"""All-reduce of what all workers hold: shared by methods that average synchronously."""

import numpy as np
from numpy.typing import NDArray

from sim.collectives.compression import Compression
from sim.engine.live_cluster import Process
from sim.sharing.barrier import Barrier
from sim.sharing.worker import Worker, mean
from sim.sharing.worker_pool import WorkerPool

Vector = NDArray[np.float64]


def all_reduce(
    pool: WorkerPool, compression: Compression, size: float, values: dict[int, Vector]
) -> Process:
    """The mean of what the workers hold, over the network as the collective library does it.

    What cannot be added up on the way (top-k, one bit) is gathered whole instead.
    """
    endpoints = [pool.workers[rank].endpoint for rank in sorted(values)]
    if compression.reducible:
        yield pool.cluster.collective("all_reduce", size, endpoints)
    else:
        yield pool.cluster.collective("all_gather", size * len(endpoints), endpoints)
    return mean(values)


def messages_to_decode(compression: Compression, barrier: Barrier) -> int:
    """How many compressed messages everyone reads: one, where they are added on the way."""
    return 1 if compression.reducible else len(barrier.members)


def count_update(worker: Worker, pool: WorkerPool, barrier: Barrier, steps: int = 1) -> None:
    """One update of all workers, from so many steps of each, counted once."""
    worker.version += 1
    if worker.version > pool.version:
        pool.version = worker.version
        batches = sum(pool.workers[rank].workload.batch for rank in barrier.members)
        pool.record.update(0, steps * batches, lambda: worker.weights)
