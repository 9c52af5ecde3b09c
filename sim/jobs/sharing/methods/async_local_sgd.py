"""Asynchronous local SGD: a worker makes many steps on its own weights, then updates the server."""

from itertools import count
from typing import ClassVar, Literal

from sim.config.checked import refuse
from sim.config.dataclass import dataclass
from sim.engine.live_cluster import Process
from sim.jobs.sharing.learning.optimizers import Optimizer
from sim.jobs.sharing.merging import DelayedNesterov, Merging
from sim.jobs.sharing.plan import FP32, Momentum, ServerBased
from sim.jobs.sharing.tables import Count, Positive
from sim.jobs.sharing.worker import Worker
from sim.jobs.sharing.worker_pool import TrainingLoop, WorkerPool


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncLocalSGD(ServerBased):
    """A worker makes `period` local steps between updates; with `dynamic` a slower worker makes
    fewer. The server steps by `outer_rate` with the mean of every `buffer` updates, and its
    `outer_momentum` moves the weights at every `delay`-th step."""

    fails_alone: ClassVar[bool] = True
    merges_late: ClassVar[bool] = True
    sends_fp32: ClassVar[bool] = True

    method: Literal["async_local_sgd"] = "async_local_sgd"
    period: Count = 1
    dynamic: bool = False
    outer_rate: Positive = 1.0
    outer_momentum: Momentum = 0.0
    delay: Count = 1
    buffer: Count = 1

    def __post_init__(self) -> None:
        if not self.outer_momentum:
            refuse(self, "have no effect without outer_momentum; set outer_momentum", "delay")

    @property
    def round_steps(self) -> int:
        return self.period

    @property
    def details(self) -> list[str]:
        told = {
            f"buffer of {self.buffer}": self.buffer > 1,
            "delayed Nesterov": self.delay > 1,
            "Nesterov": self.outer_momentum and self.delay == 1,
            "dynamic local updates": self.dynamic,
        }
        return [name for name, holds in told.items() if holds]

    def merging(self, optimizer: Optimizer, size: int) -> Merging:
        outer = DelayedNesterov(self.outer_rate, self.outer_momentum, self.delay, size)
        return Merging(rule=outer, buffer=self.buffer)

    def kept_by_server(self, parameters: float, workers: int) -> dict[str, float]:
        copies = {
            "outer momentum": bool(self.outer_momentum),
            "sum of the delayed": self.delay > 1,
            "sum in the buffer": self.buffer > 1,
        }
        return {name: FP32 * parameters for name, holds in copies.items() if holds}

    def kept(self, parameters: float, width: float, workers: int) -> dict[str, float]:
        kept = ServerBased.kept(self, parameters, width, workers)
        return {**kept, "start of the round": width * parameters}

    def averaged(self, workers: int) -> float:
        return float(max(self.delay, self.buffer))

    @property
    def outer_reach(self) -> float:
        return self.outer_rate / (1.0 - self.outer_momentum)

    def start(self, pool: WorkerPool) -> None:
        pool.train(asynchronous(self, pool))


def asynchronous(plan: AsyncLocalSGD, pool: WorkerPool) -> TrainingLoop:
    """Asynchronous local SGD against a server (Liu et al. 2024, arXiv 2401.09135);
    with a buffer it is FedBuff (Nguyen et al. 2022, arXiv 2106.06639).

    With dynamic local updates a worker makes as many steps as it can while the fastest worker
    makes H steps. So all workers push updates about equally often.
    """
    server = pool.server

    def train(worker: Worker) -> Process:
        period = local_updates(worker, pool, plan.period) if plan.dynamic else plan.period
        for number in count():
            yield from server.pull(worker)
            yield from worker.local_steps(number, period)
            sent = yield from worker.encode(worker.fetched - worker.weights, number)
            yield from server.push(worker)
            server.merge(sent, read=worker.version, samples=worker.workload.batch * period)

    return train


def local_updates(worker: Worker, pool: WorkerPool, period: int) -> int:
    """`period` x (the fastest worker's step time / this worker's step time), rounded down, at least
    1. This is DyLU: a worker's number of steps is proportional to its speed."""
    times = [peer.workload.seconds * peer.mean_slowdown for peer in pool.workers]
    return max(1, int(period * min(times) / times[worker.rank]))
