"""Hogwild: the workers of one host read and write weights in its memory, and nobody locks them."""

from itertools import count
from typing import Annotated, ClassVar, Literal

import numpy as np

from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.units import Gt, Le
from sim.engine.live_cluster import Process
from sim.jobs.sharing.learning.optimizers import Optimizer, Steps
from sim.jobs.sharing.merging import Merging
from sim.jobs.sharing.plan import Sharing
from sim.jobs.sharing.worker import Worker
from sim.jobs.sharing.worker_pool import TrainingLoop, WorkerPool
from sim.program.causes import PULL, PUSH

_PIECES = 4  # pieces in which a worker reads the weights, while other workers write


@dataclass(frozen=True, slots=True, kw_only=True)
class Hogwild(Sharing):
    """A step reads and writes the share `touched` of the weights, which is small for sparse
    data."""

    waits: ClassVar[bool] = False
    merges_late: ClassVar[bool] = True
    optimizer_elsewhere: ClassVar[bool] = True

    method: Literal["hogwild"] = "hogwild"
    touched: Annotated[float, Gt(0), Le(1)] = 1.0

    def __post_init__(self) -> None:
        if self.compression.kind != "none":
            raise ValueError("hogwild sends nothing; leave compression out")

    def merging(self, optimizer: Optimizer, size: int) -> Merging:
        return Merging(rule=Steps(optimizer, size))

    def averaged(self, workers: int) -> float:
        return 1.0

    def check(self, workers: int, nodes: int, where: str) -> None:
        if nodes > 1:
            fault = f"hogwild on {nodes} nodes, which share no memory"
            raise InputError(where, fault, "use fewer workers, or an asynchronous parameter server")
        Sharing.check(self, workers, nodes, where)  # super() fails in a class with slots

    def start(self, pool: WorkerPool) -> None:
        if pool.cluster.topology.host is None:
            fault = f"hogwild needs hosts, which {pool.cluster.topology.name} does not describe"
            raise InputError("sharing", fault, "give the topology a [host] table")
        pool.train(lock_free(self, pool))


def lock_free(plan: Hogwild, pool: WorkerPool) -> TrainingLoop:
    """Workers read, compute and write without locks (Recht, Re, Wright and Niu 2011).

    A step reads the weights once; its write reads and writes them again. So it moves the share
    `touched` of the weights' S bytes three times. All workers share the bandwidth B of the host's
    memory, so together they make at most B / (3 touched S) steps a second. A read is no snapshot:
    each of its pieces has the weights of the moment at which it was read.
    """
    size, shared = plan.touched * pool.workers[0].workload.bytes, pool.shared
    assert shared is not None

    def train(worker: Worker) -> Process:
        choices = pool.choices(4, worker.rank)
        for step in count():
            read, parts = shared.version, []
            for piece in range(_PIECES):
                passing = pool.cluster.host_copy(size / _PIECES, worker.endpoint, "down")
                yield from worker.wait(passing, PULL, "read")
                parts.append(np.array_split(shared.weights, _PIECES)[piece])
            worker.weights = np.concatenate(parts)
            gradient = yield from worker.compute(step)
            if plan.touched < 1.0:
                gradient = gradient * (choices.random(gradient.size) < plan.touched)
            writing = pool.cluster.host_copy(size, worker.endpoint, "up", passes=2.0)
            yield from worker.wait(writing, PUSH, "write")
            shared.merge(gradient, read=read, samples=worker.workload.batch, at=worker.weights)

    return train
