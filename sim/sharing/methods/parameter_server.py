"""Parameter servers: bulk synchronous, asynchronous, stale synchronous, with backup workers.

Li et al. 2014 (OSDI), Scaling Distributed Machine Learning with the Parameter Server. A step pulls
the weights, computes and pushes the gradient. A server sends weights as soon as a worker may have
them, so a pull is one message and has no request of its own.
"""

from dataclasses import dataclass
from itertools import count
from math import inf
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sim.config.errors import InputError
from sim.config.units import Bytes
from sim.engine.live_cluster import Event, Process
from sim.engine.network import then
from sim.program.causes import DATA
from sim.sharing.barrier import Barrier
from sim.sharing.exchange import Exchange
from sim.sharing.learning.task import deferred
from sim.sharing.plan import ServerBased
from sim.sharing.tables import Natural, refuse
from sim.sharing.worker import Worker, mean
from sim.sharing.worker_pool import TrainingLoop, WorkerPool
from sim.sharing.workload import TimedLayer, buckets

Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterServer(ServerBased):
    """A `mode`, with the staleness `bound` of "ssp" and the `backup` workers of "backup".

    With `overlap` layers of at least `bucket` bytes are pushed and pulled beside the passes.
    """

    method: Literal["parameter_server"] = "parameter_server"
    mode: Literal["bsp", "async", "ssp", "backup"] = "bsp"
    bound: Natural = 0
    backup: Natural = 0
    overlap: bool = False
    bucket: Bytes = 25 * 2.0**20

    def __post_init__(self) -> None:
        if self.bound and self.mode != "ssp":
            raise ValueError(f'a bound with mode = "{self.mode}"; set mode = "ssp"')
        if self.backup and self.mode != "backup":
            raise ValueError(f'backup workers with mode = "{self.mode}"; set mode = "backup"')
        if self.overlap and self.mode != "bsp":
            raise ValueError('layer by layer needs mode = "bsp"; leave overlap out')
        if not self.overlap:
            refuse(self, "say nothing without overlap = true", "bucket")

    @property
    def details(self) -> list[str]:
        modes = {
            "bsp": "synchronous",
            "async": "asynchronous",
            "ssp": f"bound {self.bound}",
            "backup": f"{self.backup} backup workers",
        }
        return [modes[self.mode], *(["overlapped"] if self.overlap else [])]

    @property
    def optimizer_elsewhere(self) -> bool:
        return self.servers != "spare"

    def averaged(self, workers: int) -> float:
        alone = self.mode in ("async", "ssp")
        return 1.0 if alone else float(workers - self.backup)

    def check(self, workers: int, nodes: int, where: str) -> None:
        if self.backup >= workers:
            what = f"backup = {self.backup} of {workers} workers: nobody is left to wait for"
            raise InputError(where, what, f"set backup to at most {workers - 1}")
        ServerBased.check(self, workers, nodes, where)  # super() does not know a class with slots

    def start(self, pool: WorkerPool) -> None:
        loops = {
            "bsp": layer_by_layer if self.overlap else bulk_synchronous,
            "async": asynchronous,
            "ssp": stale_synchronous,
            "backup": with_backup_workers,
        }
        pool.train(loops[self.mode](self, pool))


def asynchronous(plan: ParameterServer, pool: WorkerPool) -> TrainingLoop:
    """Nobody waits for anybody: Downpour SGD (Dean et al. 2012, section 4.1)."""
    server = pool.server

    def train(worker: Worker) -> Process:
        for step in count():
            yield from server.pull(worker)
            gradient = yield from worker.compute(step)
            sent = yield from worker.encode(gradient, step)
            yield from server.push(worker)
            server.apply(sent, worker.version, worker.workload.batch)

    return train


def stale_synchronous(plan: ParameterServer, pool: WorkerPool) -> TrainingLoop:
    """No worker is more than `bound` steps ahead of the slowest (Ho et al. 2013, section 2)."""
    server, clocks = pool.server, pool.clocks()

    def train(worker: Worker) -> Process:
        for step in count():
            yield from worker.wait(clocks.reach(step - plan.bound))
            yield from server.pull(worker)
            gradient = yield from worker.compute(step)
            sent = yield from worker.encode(gradient, step)
            yield from server.push(worker)
            server.apply(sent, worker.version, worker.workload.batch)
            clocks.tick(worker.rank)

    return train


def bulk_synchronous(plan: ParameterServer, pool: WorkerPool) -> TrainingLoop:
    """The server waits for every gradient and applies their mean (Valiant 1990's supersteps)."""

    def apply(_: int, gradients: dict[int, Vector]) -> Process:
        _apply_mean(pool, gradients)
        yield from ()  # it takes no time: that was booked with the last push

    server, barrier = pool.server, pool.barrier(apply)

    def train(worker: Worker) -> Process:
        for step in count():
            yield from server.pull(worker)
            gradient = yield from worker.compute(step)
            sent = yield from worker.encode(gradient, step)
            yield from server.push(worker)
            yield from worker.exchange(barrier.join(worker.rank, step, sent))

    return train


def _apply_mean(pool: WorkerPool, gradients: dict[int, Vector]) -> None:
    batches = sum(pool.workers[rank].workload.batch for rank in gradients)
    pool.server.apply(mean(gradients), pool.server.version, batches)


def with_backup_workers(plan: ParameterServer, pool: WorkerPool) -> TrainingLoop:
    """The first n - b gradients count, later ones are dropped (Chen et al. 2016, algorithm 3)."""
    server, first_gradients = pool.server, FirstGradients(pool, plan.backup)

    def train(worker: Worker) -> Process:
        for step in count():
            yield from server.pull(worker)
            gradient = yield from worker.compute(step)
            sent = yield from worker.encode(gradient, step)
            yield from server.push(worker)
            if worker.version < server.version:
                pool.record.dropped += 1
            else:
                yield from worker.wait(first_gradients.add(worker.rank, sent))

    return train


class FirstGradients:
    """Gradients of one round, until all workers that are left but `backup` have added theirs."""

    def __init__(self, pool: WorkerPool, backup: int) -> None:
        self.pool, self.backup = pool, backup
        self.members = {worker.rank for worker in pool.workers}
        self.collected: dict[int, Vector] = {}
        self.complete = pool.cluster.event()
        pool.on_loss(self.leave)

    def add(self, rank: int, gradient: Vector) -> Event:
        """Fires when the round is complete."""
        self.collected[rank] = gradient
        this_round = self.complete
        self._apply_if_enough()
        return this_round

    def leave(self, rank: int) -> None:
        self.members.discard(rank)
        self._apply_if_enough()

    def _apply_if_enough(self) -> None:
        if self.collected and len(self.collected) >= len(self.members) - self.backup:
            _apply_mean(self.pool, self.collected)
            self.collected = {}
            complete, self.complete = self.complete, self.pool.cluster.event()
            complete.succeed()


def layer_by_layer(plan: ParameterServer, pool: WorkerPool) -> TrainingLoop:
    """Each layer is pushed as soon as its gradient is there and pulled while others compute.

    Poseidon's wait-free backpropagation (Zhang et al. 2017, section 3.1); the next forward pass
    waits for each layer in turn (Jayarajan et al. 2019). Layers are joined to at least the plan's
    `bucket`. The arithmetic goes with the first layer, which is pushed last and needed first.
    """

    def apply(key: tuple[int, int], gradients: dict[int, Vector]) -> Process:
        if key[1] == 0:
            _apply_mean(pool, gradients)
        yield from ()
        return pool.server.weights

    barrier = pool.barrier(apply)

    def train(worker: Worker) -> Process:
        work = worker.workload
        layers = buckets(work.layers, parameters=plan.bucket / work.width)
        shares = [layer.parameters / work.parameters for layer in layers]
        pulled = [LayerExchange(pool, worker, layer) for layer in layers]
        for exchange in pulled:
            exchange.begin(exchange.pull())
        for step in count():
            for number, layer in enumerate(layers):
                yield from worker.exchange(pulled[number])
                if pool.server.only_sums:
                    yield from worker.optimizer_pass(shares[number])
                if number == 0:  # with which all weights count as arrived
                    gradient = deferred(worker.task, worker.weights, worker.rank, step)
                yield from worker.forward(step, layer)
            sent = worker.compressed(gradient(), step)
            for number, layer in reversed(list(enumerate(layers))):
                yield from worker.backward(step, layer)
                yield from worker.encode_part(shares[number])
                pulled[number] = LayerExchange(pool, worker, layer)
                pulled[number].begin(pulled[number].push_and_pull(barrier, (step, number), sent))
            worker.steps += 1

    return train


class LayerExchange(Exchange):
    """One layer to the servers, its mean back: beside the passes.

    The GPUs of a node each reduce, send and receive a part of it, and gather the others' parts.
    """

    def __init__(self, pool: WorkerPool, worker: Worker, layer: TimedLayer) -> None:
        super().__init__(pool.cluster.env)
        self.cluster, self.server = pool.cluster, pool.server
        self.worker, self.layer = worker, layer
        self.size = layer.parameters * worker.workload.width
        self.complete = -inf  # nobody is waited for where a layer is only pulled

    def begin(self, process: Process) -> None:
        """Let the process run beside everything else; this event is its end."""
        then(self.cluster.start(process), self._over)

    def _over(self, _: Event) -> None:
        self.succeed()

    def pull(self) -> Process:
        """The weights to all GPUs of the worker."""
        shares = self.server.shards.shares
        yield self.cluster.gather(self.size, shares, self.worker.endpoint)
        yield self._inside("all_gather")

    def push_and_pull(self, barrier: Barrier, key: tuple[int, int], gradient: Vector) -> Process:
        """The gradient to the servers, the new weights back."""
        worker, began = self.worker, self.cluster.now
        yield self._inside("reduce_scatter")
        if (away := self.server.away) > 0.0:
            yield self.cluster.sleep(away)
        yield self.server.arrival(worker, worker.message_of(self.layer))
        yield self.server.worked_in(self.size)
        self.reached, self.complete = self.cluster.now, inf
        weights = yield barrier.join(worker.rank, key, gradient)
        self.complete = self.cluster.now
        yield from self.pull()
        worker.note(f"push and pull {key[1]}", DATA, began)
        if key[1] == 0:
            worker.weights, worker.version = weights, self.server.version

    def _inside(self, kind: str) -> Event:
        return self.cluster.collective(kind, self.size, [self.worker.endpoint])
