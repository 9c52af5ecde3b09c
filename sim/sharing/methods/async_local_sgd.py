"""Asynchronous local SGD: many steps on one's own weights, then an update of the server."""

from dataclasses import dataclass
from itertools import count
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sim.engine.live_cluster import Process
from sim.sharing.plan import Momentum, ServerBased
from sim.sharing.server import Server
from sim.sharing.tables import Count, Positive
from sim.sharing.worker import Worker
from sim.sharing.worker_pool import TrainingLoop, WorkerPool

Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncLocalSGD(ServerBased):
    """`period` local steps between updates, fewer of them on slower workers where `dynamic`; the
    server's `outer_momentum` moves every `delay` arrivals."""

    method: Literal["async_local_sgd"] = "async_local_sgd"
    period: Count = 1
    dynamic: bool = False
    outer_rate: Positive = 1.0
    outer_momentum: Momentum = 0.0
    delay: Count = 1

    def kept(self, parameters: float, width: float, workers: int) -> dict[str, float]:
        own = ServerBased.kept(self, parameters, width, workers)
        return {**own, "start of the round": width * parameters}

    def averaged(self, workers: int) -> float:
        return float(self.delay)

    def start(self, pool: WorkerPool) -> None:
        pool.train(asynchronous(self, pool))


def asynchronous(plan: AsyncLocalSGD, pool: WorkerPool) -> TrainingLoop:
    """Asynchronous local SGD against a server (Liu et al. 2024, arXiv 2401.09135, algorithm 1).

    With dynamic local updates (their section 4.2) a worker does as many of the H steps as its
    speed allows in the time of the fastest, so that all come back about equally often.
    """
    server = pool.server
    outer = DelayedNesterov(server, plan.outer_rate, plan.outer_momentum, plan.delay)

    def train(worker: Worker) -> Process:
        period = local_updates(worker, pool, plan.period) if plan.dynamic else plan.period
        for number in count():
            yield from server.pull(worker)
            start, read = worker.weights, worker.version
            yield from worker.local_steps(number, period)
            sent = yield from worker.encode(start - worker.weights, number)
            yield from server.push(worker)
            outer.apply(sent, read, worker.workload.batch * period)

    return train


def local_updates(worker: Worker, pool: WorkerPool, period: int) -> int:
    """H x the fastest worker's step / its own, at least 1 (DyLU: steps in proportion to speed)."""
    times = [peer.workload.seconds * peer.mean_slowdown for peer in pool.workers]
    return max(1, int(period * min(times) / times[worker.rank]))


class DelayedNesterov:
    """Momentum that moves only every N arrivals (Liu et al. 2024, algorithm 3, with c = 0).

    Between, w <- w - rate d / N; at the N-th, m <- beta m + (sum of d) / N and
    w <- w - rate (beta m + d / N).
    """

    def __init__(self, server: Server, rate: float, beta: float, delay: int) -> None:
        self.server, self.rate, self.beta, self.delay = server, rate, beta, delay
        self.moment: Vector = np.zeros_like(server.weights)
        self.sum: Vector = np.zeros_like(server.weights)
        self.arrivals = 0

    def apply(self, delta: Vector, read: int, samples: float) -> None:
        """One worker's change since it read version `read`."""
        server = self.server
        self.arrivals += 1
        self.sum = self.sum + delta
        direction = delta / self.delay
        if self.arrivals % self.delay == 0:
            self.moment = self.beta * self.moment + self.sum / self.delay
            self.sum = np.zeros_like(self.sum)
            direction = self.beta * self.moment + direction
        server.weights = server.weights - self.rate * direction
        server.count(server.version - read, samples)
