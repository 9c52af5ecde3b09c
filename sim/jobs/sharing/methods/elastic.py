"""EASGD: workers keep weights of their own, which an elastic force ties to a common centre."""

from itertools import count
from typing import ClassVar, Literal

from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.engine.live_cluster import Process
from sim.jobs.sharing.plan import ServerBased
from sim.jobs.sharing.tables import Count, Positive
from sim.jobs.sharing.worker import Worker
from sim.jobs.sharing.worker_pool import TrainingLoop, WorkerPool


@dataclass(frozen=True, slots=True, kw_only=True)
class Elastic(ServerBased):
    """After `period` local steps a worker's weights and the centre move towards each other. Both
    move by their distance times `moving_rate` / workers. The default 0.9 is the "default value as
    paper described" in tensorflow/contrib/opt/python/training/elastic_average_optimizer.py, which
    also divides it by the period."""

    fails_alone: ClassVar[bool] = True

    method: Literal["elastic"] = "elastic"
    period: Count = 1
    moving_rate: Positive = 0.9

    @property
    def round_steps(self) -> int:
        return self.period

    @property
    def details(self) -> list[str]:
        return [f"EASGD, {self.period} local steps"]

    def check(self, workers: int, nodes: int, where: str) -> None:
        if self.moving_rate > workers:
            fault = f"moving_rate = {self.moving_rate} with {workers} workers moves past the centre"
            raise InputError(where, fault, f"set it to at most {workers}")
        ServerBased.check(self, workers, nodes, where)  # super() fails in a class with slots

    def averaged(self, workers: int) -> float:
        return 1.0

    def spread(self, workers: int) -> float:
        return float(workers)

    def kept(self, parameters: float, width: float, workers: int) -> dict[str, float]:
        kept = ServerBased.kept(self, parameters, width, workers)
        return {**kept, "centre": width * parameters}

    def kept_by_server(self, parameters: float, workers: int) -> dict[str, float]:
        return {}

    def start(self, pool: WorkerPool) -> None:
        pool.train(elastic_averaging(self, pool))


def elastic_averaging(plan: Elastic, pool: WorkerPool) -> TrainingLoop:
    """Asynchronous EASGD (Zhang, Choromanska and LeCun 2015, arXiv 1412.6651).

    Of n workers, worker i has the weights x_i. With d = (x_i - centre) `moving_rate` / n: x_i <-
    x_i - d, centre <- centre + d. So only gradients change the sum of all x_i and the centre. With
    Nesterov's momentum in the workers the method is EAMSGD.
    """
    server, strength = pool.server, plan.moving_rate / len(pool.workers)

    def train(worker: Worker) -> Process:
        for number in count():
            yield from worker.local_steps(number, plan.period)
            centre, read = yield from server.fetch(worker)
            sent = yield from worker.encode(strength * (worker.weights - centre), number)
            worker.weights = worker.weights - sent
            yield from server.push(worker)
            server.weights = server.weights + sent
            server.count(server.version - read, plan.period * worker.workload.batch)

    return train
