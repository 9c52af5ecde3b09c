"""Data parallelism by all-reduce, with and without overlap."""

from itertools import count
from typing import Any, ClassVar, Literal

from sim.config.checked import refuse
from sim.config.dataclass import dataclass
from sim.config.units import Bytes
from sim.engine.live_cluster import Process
from sim.jobs.sharing.averaging import Averaging, count_update
from sim.jobs.sharing.learning.task import Vector
from sim.jobs.sharing.plan import OF_UPDATE, Sharing
from sim.jobs.sharing.worker import Worker
from sim.jobs.sharing.worker_pool import TrainingLoop, WorkerPool
from sim.jobs.sharing.workload import Workload, buckets


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduce(Sharing):
    """With `overlap`, buckets of at least `bucket` bytes are reduced beside the backward pass."""

    in_step: ClassVar[bool] = True

    method: Literal["all_reduce"] = "all_reduce"
    overlap: bool = False
    bucket: Bytes = 25 * 2.0**20

    def __post_init__(self) -> None:
        if not self.overlap:
            refuse(self, "have no effect without overlap; set overlap = true", "bucket")

    @property
    def details(self) -> list[str]:
        return ["overlapped"] if self.overlap else []

    def update_seconds(self, workers: int, work: Workload) -> float:
        return OF_UPDATE * (work.most_buckets(self.bucket) if self.overlap else 1)

    def start(self, pool: WorkerPool) -> None:
        pool.train(overlapped(self, pool) if self.overlap else synchronous_sgd(self, pool))


def synchronous_sgd(plan: AllReduce, pool: WorkerPool) -> TrainingLoop:
    """All gradients are averaged, then every worker steps (Goyal et al. 2017)."""

    averaging = Averaging(pool)
    barrier = pool.collectives(averaging.of(pool.workers[0].workload.whole))

    def train(worker: Worker) -> Process:
        for step in count():
            gradient = yield from worker.passes(step)
            sent = yield from worker.encode(gradient, step)
            joined = barrier.join(worker.rank, step, sent)
            average = yield from worker.exchange(joined, "all-reduce")
            yield from worker.decode(averaging.messages(barrier))
            yield from worker.apply(average)
            count_update(worker, pool, barrier)

    return train


def overlapped(plan: AllReduce, pool: WorkerPool) -> TrainingLoop:
    """DistributedDataParallel: buckets are reduced during the backward pass (Li et al. 2020).

    The task's gradient travels with the last bucket, which holds the first layers.
    """
    averaging, first = Averaging(pool), pool.workers[0].workload
    parts = buckets(first.layers, parameters=plan.bucket / first.width)

    def reduce(key: tuple[int, int], values: dict[int, Vector]) -> Process:
        yield from averaging.sent(parts[key[1]], list(values))
        return averaging.mean(values) if key[1] == 0 else None

    barrier = pool.collectives(reduce)

    def train(worker: Worker) -> Process:
        work = worker.workload
        layers = buckets(work.layers, parameters=plan.bucket / work.width)
        for step in count():
            gradient = worker.task.gradient(worker.weights, worker.rank, step)
            for layer in layers:
                yield from worker.forward(step, layer)
            sent = worker.compressed(gradient, step)
            reduced: list[Any] = []
            for number, layer in reversed(list(enumerate(layers))):
                share = layer.parameters / work.parameters
                yield from worker.backward(step, layer)
                yield from worker.encode_part(share)
                reduced.append(barrier.join(worker.rank, (step, number), sent))
            average = yield from worker.exchange(reduced[-1], "all-reduce")
            yield from worker.decode(averaging.messages(barrier))
            yield from worker.apply(average)
            worker.steps += 1
            count_update(worker, pool, barrier)

    return train
