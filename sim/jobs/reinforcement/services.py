"""Services outside the servers for which answers wait: tools, sandboxes, reward models."""

from heapq import heappush, heapreplace

import numpy as np

from sim.engine.live_cluster import Event, LiveCluster
from sim.jobs.generation.lengths import Law

_BLOCK = 4096  # values that are drawn at once


class Waiting:
    """Workers that serve in the order of arrival; None stands for any number of workers."""

    def __init__(self, cluster: LiveCluster, workers: int | None) -> None:
        self._cluster, self._workers = cluster, workers
        self._free: list[float] = []  # a heap: when each worker that has served becomes free

    def serve(self, seconds: float) -> Event:
        """An event that fires when a worker has served for `seconds`."""
        now, free = self._cluster.now, self._free
        if self._workers is None:
            return self._cluster.sleep(seconds)
        if len(free) < self._workers and not (free and free[0] <= now):
            heappush(free, now + seconds)
            return self._cluster.sleep(seconds)
        end = max(now, free[0]) + seconds
        heapreplace(free, end)
        return self._cluster.sleep(end - now)


class Drawn:
    """Returns the values of a law one after the other, and draws them in blocks."""

    def __init__(self, law: Law, rng: np.random.Generator) -> None:
        self._law, self._rng = law, rng
        self._block: list[float] = []

    def next(self) -> float:
        if not self._block:
            normal = self._rng.standard_normal(_BLOCK)
            self._block = self._law.values(normal)[::-1].tolist()
        return self._block.pop()
