"""Parameter servers: bulk synchronous, asynchronous, stale synchronous, with backup workers.

Li et al. 2014 (OSDI), Scaling Distributed Machine Learning with the Parameter Server. A step pulls
the weights, computes the gradient and pushes it. A server sends weights as soon as a worker may
have them, so a pull is one message and has no request of its own.
"""

from dataclasses import replace
from itertools import count
from math import inf
from typing import Literal

from sim.config.checked import refuse
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.units import Bytes
from sim.engine.events import then
from sim.engine.live_cluster import Event, Process
from sim.jobs.sharing.barrier import Barrier, Exchange
from sim.jobs.sharing.learning.optimizers import Optimizer
from sim.jobs.sharing.learning.task import Vector
from sim.jobs.sharing.merging import DelayCompensated, Merging
from sim.jobs.sharing.plan import FP32, ServerBased
from sim.jobs.sharing.tables import Count, Natural, NonNegative
from sim.jobs.sharing.worker import Worker, mean
from sim.jobs.sharing.worker_pool import TrainingLoop, WorkerPool
from sim.jobs.sharing.workload import TimedLayer, Workload, buckets
from sim.program.causes import DATA


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterServer(ServerBased):
    """The `mode` says who waits: "bsp" is synchronous, "async" asynchronous. "ssp" is stale
    synchronous, with a `bound` on the staleness. "backup" waits for all but `backup` workers.

    With "async" and "ssp" the server steps with the mean of every `buffer` gradients. It
    compensates each gradient for its delay, with the strength `compensation` (lambda). `adaptive`
    adapts lambda as in DC-ASGD-a.

    With `cached` weights a worker of "ssp" pulls only when its copy lacks updates that the bound
    promises. Between pulls, it applies its own updates to the copy. With `overlap` layers of at
    least `bucket` bytes are pushed and pulled beside the passes.
    """

    method: Literal["parameter_server"] = "parameter_server"
    mode: Literal["bsp", "async", "ssp", "backup"] = "bsp"
    bound: Natural = 0
    backup: Natural = 0
    cached: bool = False
    buffer: Count = 1
    compensation: NonNegative = 0.0
    adaptive: bool = False
    overlap: bool = False
    bucket: Bytes = 25 * 2.0**20

    def __post_init__(self) -> None:
        of_modes = {"ssp": ("bound", "cached"), "backup": ("backup",), "bsp": ("overlap",)}
        for mode, keys in of_modes.items():
            if self.mode != mode:
                why = f'have no effect with mode = "{self.mode}"; set mode = "{mode}"'
                refuse(self, why, *keys)
        if not self.overlap:
            refuse(self, "have no effect without overlap; set overlap = true", "bucket")
        if not self.merges_late:
            why = f'have no effect with mode = "{self.mode}"; set mode = "async" or "ssp"'
            refuse(self, why, "buffer", "compensation")
        if not self.compensation:
            refuse(self, "have no effect without compensation; set compensation", "adaptive")

    @property
    def fails_alone(self) -> bool:
        return self.mode == "async"

    @property
    def merges_late(self) -> bool:
        return self.mode in ("async", "ssp")

    def merging(self, optimizer: Optimizer, size: int) -> Merging:
        merging = ServerBased.merging(self, optimizer, size)
        compensate = DelayCompensated(self.compensation, self.adaptive)
        return replace(
            merging, buffer=self.buffer, compensate=compensate if self.compensation else None
        )

    def kept_by_server(self, parameters: float, workers: int) -> dict[str, float]:
        """With compensation a server also keeps the weights that each worker has read (w_bak of
        Zheng et al. 2017)."""
        copies = {
            "sum in the buffer": self.buffer > 1,
            "weights that workers have read": workers * bool(self.compensation),
            "mean squares": self.adaptive,
        }
        kept_by_server = ServerBased.kept_by_server(self, parameters, workers)
        return kept_by_server | {
            name: count * FP32 * parameters for name, count in copies.items() if count
        }

    @property
    def details(self) -> list[str]:
        modes = {
            "bsp": "synchronous",
            "async": "asynchronous",
            "ssp": f"bound {self.bound}",
            "backup": f"{self.backup} backup workers",
        }
        told = {
            "overlapped": self.overlap,
            "cached": self.cached,
            f"buffer of {self.buffer}": self.buffer > 1,
            "delay-compensated": self.compensation,
        }
        return [modes[self.mode], *(name for name, holds in told.items() if holds)]

    def update_seconds(self, workers: int, work: Workload) -> float:
        update_seconds = ServerBased.update_seconds(self, workers, work)
        return update_seconds * (work.most_buckets(self.bucket) if self.overlap else 1)

    @property
    def optimizer_elsewhere(self) -> bool:
        return self.servers != "spare"

    def averaged(self, workers: int) -> float:
        return float(self.buffer if self.merges_late else workers - self.backup)

    def check(self, workers: int, nodes: int, where: str) -> None:
        if self.backup >= workers:
            fault = f"backup = {self.backup} of {workers} workers leaves no worker to wait for"
            raise InputError(where, fault, f"set backup to at most {workers - 1}")
        ServerBased.check(self, workers, nodes, where)  # super() fails in a class with slots

    def start(self, pool: WorkerPool) -> None:
        loops = {
            "bsp": layer_by_layer if self.overlap else bulk_synchronous,
            "async": asynchronous,
            "ssp": stale_synchronous,
            "backup": with_backup_workers,
        }
        pool.train(loops[self.mode](self, pool))


def asynchronous(plan: ParameterServer, pool: WorkerPool) -> TrainingLoop:
    """No worker waits for another: Downpour SGD (Dean et al. 2012)."""
    server = pool.server

    def train(worker: Worker) -> Process:
        for step in count():
            yield from server.pull(worker)
            gradient = yield from worker.compute(step)
            sent = yield from worker.encode(gradient, step)
            yield from server.push(worker)
            _merge(pool, worker, sent)

    return train


def _merge(pool: WorkerPool, worker: Worker, gradient: Vector) -> None:
    """Merge a gradient that a worker has computed on the weights that it pulled."""
    batch, version = worker.workload.batch, worker.version
    pool.server.merge(gradient, read=version, samples=batch, at=worker.weights)


def stale_synchronous(plan: ParameterServer, pool: WorkerPool) -> TrainingLoop:
    """No worker is more than `bound` steps ahead of the slowest (Ho et al. 2013). A worker reads
    its cache while the cache has all updates of `bound` steps ago; the cache also has the worker's
    own updates ("read-my-writes")."""
    server, clocks = pool.server, pool.clocks()

    def train(worker: Worker) -> Process:
        held = -inf  # the weights contain all workers' updates of this many steps
        for step in count():
            yield from worker.wait(clocks.reach(step - plan.bound))
            if not plan.cached or held < step - plan.bound:
                held = clocks.slowest
                yield from server.pull(worker)
            gradient = yield from worker.compute(step)
            sent = yield from worker.encode(gradient, step)
            yield from server.push(worker)
            _merge(pool, worker, sent)
            if plan.cached:
                worker.weights = worker.optimizer.step(worker.weights, sent)
            clocks.tick(worker.rank)

    return train


def bulk_synchronous(plan: ParameterServer, pool: WorkerPool) -> TrainingLoop:
    """The server waits for every gradient and applies their mean (Valiant 1990's supersteps)."""

    def apply(_: int, gradients: dict[int, Vector]) -> Process:
        apply_mean(pool, gradients)
        yield from ()  # takes no time: each push has counted the server's seconds

    server, barrier = pool.server, pool.barrier(apply)

    def train(worker: Worker) -> Process:
        for step in count():
            yield from server.pull(worker)
            gradient = yield from worker.compute(step)
            sent = yield from worker.encode(gradient, step)
            yield from server.push(worker)
            yield from worker.exchange(barrier.join(worker.rank, step, sent))

    return train


def with_backup_workers(plan: ParameterServer, pool: WorkerPool) -> TrainingLoop:
    """Of the n gradients of a step, the first n - `backup` count (Chen et al. 2016)."""
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


def layer_by_layer(plan: ParameterServer, pool: WorkerPool) -> TrainingLoop:
    """Each layer is pushed as soon as its gradient is ready, and pulled while other layers compute.

    This is Poseidon's wait-free backpropagation (Zhang et al. 2017); the next forward pass waits
    for each layer in turn (Jayarajan et al. 2019). Layers are joined until they have the plan's
    `bucket` bytes. The task's whole gradient travels with the first layer, which is pushed last and
    needed first.
    """

    def apply(key: tuple[int, int], gradients: dict[int, Vector]) -> Process:
        if key[1] == 0:
            apply_mean(pool, gradients)
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
                if number == 0:  # all weights of the task arrive with this layer
                    gradient = worker.task.gradient(worker.weights, worker.rank, step)
                yield from worker.forward(step, layer)
            sent = worker.compressed(gradient, step)
            for number, layer in reversed(list(enumerate(layers))):
                yield from worker.backward(step, layer)
                yield from worker.encode_part(shares[number])
                pulled[number] = LayerExchange(pool, worker, layer)
                pulled[number].begin(pulled[number].push_and_pull(barrier, (step, number), sent))
            worker.steps += 1

    return train


def apply_mean(pool: WorkerPool, gradients: dict[int, Vector]) -> None:
    batches = sum(pool.workers[rank].workload.batch for rank in gradients)
    pool.server.merge(mean(gradients), read=pool.server.version, samples=batches)


class FirstGradients:
    """The gradients of a round. The round is complete when all remaining workers but `backup` have
    added their gradients."""

    def __init__(self, pool: WorkerPool, backup: int) -> None:
        self.pool, self.backup = pool, backup
        self.members = {worker.rank for worker in pool.workers}
        self.collected: dict[int, Vector] = {}
        self.complete = pool.cluster.event()
        pool.on_loss(self.leave)

    def add(self, rank: int, gradient: Vector) -> Event:
        """Add a worker's gradient; the returned event fires when the round is complete."""
        self.collected[rank] = gradient
        this_round = self.complete
        self._apply_if_enough()
        return this_round

    def leave(self, rank: int) -> None:
        self.members.discard(rank)
        self._apply_if_enough()

    def _apply_if_enough(self) -> None:
        if self.collected and len(self.collected) >= len(self.members) - self.backup:
            apply_mean(self.pool, self.collected)
            self.collected = {}
            complete, self.complete = self.complete, self.pool.cluster.event()
            complete.succeed()


class LayerExchange(Exchange):
    """Sends a layer's gradient to the servers and fetches its new weights, beside the passes.

    Each GPU of a node reduces, sends and receives a part of the layer, then gathers other parts.
    """

    def __init__(self, pool: WorkerPool, worker: Worker, layer: TimedLayer) -> None:
        super().__init__(pool.cluster.env)
        self.cluster, self.server = pool.cluster, pool.server
        self.worker, self.layer = worker, layer
        self.size = layer.parameters * worker.workload.width
        self.complete = -inf  # a layer that is only pulled waits for no worker

    def begin(self, process: Process) -> None:
        """Run the process beside everything else; this event fires at its end."""
        then(self.cluster.start(process), self._over)

    def _over(self, _: Event) -> None:
        self.succeed()

    def pull(self) -> Process:
        """Bring the layer's weights to all GPUs of the worker."""
        shares = self.server.shards.shares
        yield self.cluster.gather(self.size, shares, self.worker.endpoint)
        yield self._inside("all_gather")

    def push_and_pull(self, barrier: Barrier, key: tuple[int, int], gradient: Vector) -> Process:
        """Send the gradient to the servers and bring the new weights back."""
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
