"""torch.nn.DataParallel: one process and one interpreter drive all GPUs of a node."""

from itertools import count
from typing import Any, ClassVar, Literal

from sim.config.dataclass import dataclass
from sim.engine.live_cluster import Process
from sim.jobs.sharing.learning.task import Vector
from sim.jobs.sharing.plan import Sharing
from sim.jobs.sharing.worker import Worker, mean
from sim.jobs.sharing.worker_pool import TrainingLoop, WorkerPool
from sim.jobs.sharing.workload import TimedLayer
from sim.program.causes import DATA


@dataclass(frozen=True, slots=True, kw_only=True)
class DataParallel(Sharing):
    """The method has no keys of its own."""

    optimizer_elsewhere: ClassVar[bool] = True

    method: Literal["data_parallel"] = "data_parallel"

    def __post_init__(self) -> None:
        if self.compression.kind != "none":
            raise ValueError("data_parallel sends gradients as they are; leave compression out")

    def kept_first(self, inputs: float, outputs: float, workers: int) -> dict[str, float]:
        """Bytes of all inputs before they are scattered, and of all outputs gathered for the loss
        (torch, nn/parallel/data_parallel.py: `output_device` is the first GPU). A cross-entropy
        keeps the logarithms of its inputs for its backward pass, and makes a gradient. The step of
        GPU 0 already counts these two tensors for GPU 0's own outputs."""
        return {
            "inputs of all": workers * inputs,
            "outputs of all": workers * outputs,
            "loss of the others": 2 * (workers - 1) * outputs,
        }

    def start(self, pool: WorkerPool) -> None:
        pool.train(single_process(pool))


def single_process(pool: WorkerPool) -> TrainingLoop:
    """A single interpreter drives all GPUs of a node (torch/nn/parallel).

    In every step GPU 0 scatters the inputs and broadcasts the weights. Each GPU has a thread that
    launches its kernels, but the interpreter's lock lets only one thread launch at a time. The
    gradients are reduced on GPU 0, and only GPU 0 makes the optimizer step. A GPU that fails for
    good ends the process.
    """
    workers, first = pool.workers, pool.workers[0]
    launching = sum(worker.workload.launches for worker in workers)

    def nothing(_: Any, values: dict[int, Vector]) -> Process:
        yield from ()
        return values

    distributed, joined = pool.barrier(nothing, 0.0), pool.barrier(nothing, 0.0)

    def end(_: int) -> None:
        for worker in workers:
            pool.lose(worker)

    pool.on_loss(end, 0.0)

    def train(worker: Worker) -> Process:
        for step in count():
            if worker is first:
                yield from _distribute(pool, first)
            yield from worker.exchange(distributed.join(worker.rank, step, worker.weights))
            worker.weights = first.weights
            gradient = worker.task.gradient(worker.weights, worker.rank, step)
            yield from _thread(worker, step, launching)
            gradients = yield from worker.exchange(joined.join(worker.rank, step, gradient))
            if worker is first:
                yield from _reduce(pool, first, gradients)
                pool.record.update(0, pool.samples, lambda: first.weights)

    return train


def _distribute(pool: WorkerPool, first: Worker) -> Process:
    """Scatter the inputs and broadcast the weights from GPU 0."""
    shares = {worker.endpoint: 1.0 for worker in pool.workers[1:]}
    inputs = first.workload.inputs * first.workload.batch
    scattering = pool.cluster.send(inputs, first.endpoint, shares)
    yield from first.wait(scattering, DATA, "scatter")
    endpoints = [worker.endpoint for worker in pool.workers]
    copying = pool.cluster.collective("broadcast", first.workload.bytes, endpoints)
    yield from first.wait(copying, DATA, "replicate")


def _reduce(pool: WorkerPool, first: Worker, gradients: dict[int, Vector]) -> Process:
    """Reduce the gradients on GPU 0, and make its optimizer step."""
    endpoints = [worker.endpoint for worker in pool.workers]
    reducing = pool.cluster.collective("reduce", first.workload.bytes, endpoints)
    yield from first.wait(reducing, DATA, "reduce")
    yield from first.apply(mean(gradients))


def _thread(worker: Worker, step: int, launching: float) -> Process:
    """A worker's passes. A forward pass ends only when all threads have launched their kernels;
    backward passes run in autograd's own threads, without the lock."""
    cluster, work, began = worker.cluster, worker.workload, worker.cluster.now
    model = TimedLayer(forward=work.forward, backward=work.backward, parameters=0.0)
    yield from worker.forward(step, model)
    late = launching - (cluster.now - began)
    if late > 0.0:
        yield from worker.wait(cluster.sleep(late))
    yield from worker.backward(step, model)
    worker.steps += 1
