"""torch.nn.DataParallel: one process and one interpreter drive all GPUs of a node."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sim.engine.live_cluster import Process
from sim.program.causes import DATA, WAITING
from sim.sharing.plan import Sharing
from sim.sharing.worker import Worker, WorkerLost, mean
from sim.sharing.worker_pool import WorkerPool
from sim.sharing.workload import TimedLayer

Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataParallel(Sharing):
    """Has no keys of its own."""

    method: Literal["data_parallel"] = "data_parallel"

    def __post_init__(self) -> None:
        if self.compression.kind != "none":
            raise ValueError("data_parallel sends gradients as they are; leave compression out")

    def start(self, pool: WorkerPool) -> None:
        pool.cluster.start(single_process(pool))


def single_process(pool: WorkerPool) -> Process:
    """One interpreter drives all GPUs of a node (torch/nn/parallel).

    Every step GPU 0 scatters the inputs and broadcasts the weights; one thread a GPU launches
    its kernels, but the interpreter's lock lets one launch at a time; outputs are gathered, the
    gradients reduced on GPU 0, which alone steps. A GPU that fails for good ends the process.
    """
    cluster, workers, first = pool.cluster, pool.workers, pool.workers[0]
    for step in pool.step_numbers():
        began = cluster.now
        yield from _distribute(pool, first)
        gradients = yield from _in_threads(workers, step)
        if any(worker.lost for worker in workers):
            break
        yield from _reduce(pool, first, gradients)
        for worker in workers[1:]:
            worker.weights = first.weights
            worker.seconds[WAITING] += cluster.now - began - worker.seconds.pop("pass")
        pool.record.update(0, pool.samples, lambda: first.weights)
    broken = any(worker.lost for worker in workers)
    for worker in workers:
        worker.lost, worker.ended = broken, cluster.now


def _distribute(pool: WorkerPool, first: Worker) -> Process:
    """Inputs scattered and weights broadcast from GPU 0."""
    shares = {worker.endpoint: 1.0 for worker in pool.workers[1:]}
    inputs = first.workload.inputs * first.workload.batch
    scattering = pool.cluster.send(inputs, first.endpoint, shares)
    yield from first.wait(scattering, DATA, "scatter")
    endpoints = [worker.endpoint for worker in pool.workers]
    copying = pool.cluster.collective("broadcast", first.workload.bytes, endpoints)
    yield from first.wait(copying, DATA, "replicate")


def _reduce(pool: WorkerPool, first: Worker, gradients: dict[int, Vector]) -> Process:
    """Gradients reduced on GPU 0, and its step."""
    endpoints = [worker.endpoint for worker in pool.workers]
    reducing = pool.cluster.collective("reduce", first.workload.bytes, endpoints)
    yield from first.wait(reducing, DATA, "reduce")
    yield from first.apply(mean(gradients))


def _in_threads(workers: Sequence[Worker], step: int) -> Process:
    """All GPUs at once; forward is launched from python, whose lock makes threads take turns."""
    cluster, first = workers[0].cluster, workers[0]
    began, launching = cluster.now, sum(worker.workload.launches for worker in workers)
    threads = [cluster.start(_thread(worker, step, launching)) for worker in workers]
    yield cluster.all_of(threads)
    if not first.lost:
        first.seconds[WAITING] += cluster.now - began - first.seconds.pop("pass")
    return {
        worker.rank: worker.task.gradient(worker.weights, worker.rank, step) for worker in workers
    }


def _thread(worker: Worker, step: int, launching: float) -> Process:
    """Forward ends when all threads have launched theirs; autograd's backward needs no lock."""
    cluster, work, began = worker.cluster, worker.workload, worker.cluster.now
    model = TimedLayer(forward=work.forward, backward=work.backward, parameters=0.0)
    try:
        yield from worker.forward(step, model)
        late = launching - (cluster.now - began)
        if late > 0.0:
            yield from worker.wait(cluster.sleep(late))
        yield from worker.backward(step, model)
    except WorkerLost:
        worker.lost = True
    else:
        worker.steps += 1
    worker.seconds["pass"] = cluster.now - began
