"""Local SGD and DiLoCo: many steps on one's own weights, then an average."""

from dataclasses import dataclass
from itertools import count
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sim.engine.live_cluster import Process
from sim.sharing.averaging import Averaging, count_update
from sim.sharing.learning.optimizers import Optimizer, Rule
from sim.sharing.plan import Momentum, Sharing
from sim.sharing.tables import Count, Positive
from sim.sharing.worker import Worker
from sim.sharing.worker_pool import TrainingLoop, WorkerPool

Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSGD(Sharing):
    """`period` steps between averages, which are applied with `outer_rate` and `outer_momentum`
    (with `nesterov` it is DiLoCo's)."""

    method: Literal["local_sgd"] = "local_sgd"
    period: Count = 1
    outer_rate: Positive = 1.0
    outer_momentum: Momentum = 0.0
    nesterov: bool = False

    @property
    def outer_optimizer(self) -> Optimizer:
        rule: Rule = "nesterov" if self.nesterov else "momentum" if self.outer_momentum else "sgd"
        return Optimizer(rule=rule, rate=self.outer_rate, beta=self.outer_momentum)

    def kept(self, parameters: float, width: float, workers: int) -> dict[str, float]:
        copies = 2 if self.outer_momentum else 1  # where the round began, and the outer momentum
        own = Sharing.kept(self, parameters, width, workers)
        return {**own, "outer state": copies * 4.0 * parameters}

    def start(self, pool: WorkerPool) -> None:
        pool.train(local_sgd(self, pool))


def local_sgd(plan: LocalSGD, pool: WorkerPool) -> TrainingLoop:
    """H local steps, then the mean of what they came to (Stich 2019; McMahan et al. 2017).

    The mean of (start - weights) is an outer gradient: with outer SGD of rate 1 this is plain
    averaging, with a momentum SlowMo (Wang et al. 2020), with Nesterov's DiLoCo (Douillard et al.
    2023, algorithm 1). Inner state is kept between rounds, as DiLoCo does.
    """

    averaging, outer = Averaging(pool), plan.outer_optimizer
    whole = pool.workers[0].workload.whole

    def reduce(_: int, values: dict[int, Vector]) -> Process:
        yield from averaging.sent(whole, list(values))
        return averaging.mean(values)

    barrier = pool.collectives(reduce)

    def train(worker: Worker) -> Process:
        state = outer.start(worker.weights.size)
        for number in count():
            start = worker.weights
            yield from worker.local_steps(number, plan.period)
            sent = yield from worker.encode(start - worker.weights, number)
            joined = barrier.join(worker.rank, number, sent)
            gradient = yield from worker.exchange(joined, "all-reduce")
            yield from worker.decode(averaging.messages(barrier))
            worker.weights, state = outer.step(start, gradient, state)
            count_update(worker, pool, barrier, plan.period)

    return train
