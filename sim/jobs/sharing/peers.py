"""The elements of gossip: local steps, messages of peers, partners.

If messages are compressed, each receiver keeps an estimate of its sender's weights, and a message
holds the difference of the weights from this estimate.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sim.collectives.compression import Compression, Shapes
from sim.config.errors import InputError
from sim.engine.live_cluster import Process
from sim.jobs.sharing.learning.task import Vector
from sim.jobs.sharing.mailboxes import Mailboxes
from sim.jobs.sharing.worker import Worker, activity
from sim.jobs.sharing.worker_pool import WorkerPool
from sim.program.causes import NEIGHBOURS


class LocalPeriods:
    """The number of steps before a worker averages: `period`, or a number drawn from a geometric
    distribution with this mean (SwarmSGD; Nadiradze et al. 2021)."""

    def __init__(self, pool: WorkerPool, worker: Worker, period: int, *, geometric: bool) -> None:
        self.worker, self.period = worker, period
        self._draws = pool.choices(3, worker.rank) if geometric else None
        self.steps = period

    def begin(self) -> int:
        """Begin a round; return its number of steps."""
        if self._draws is not None:
            self.steps = int(self._draws.geometric(1.0 / self.period))
        return self.steps

    def all_but_one(self) -> Process:
        """Make all local steps of a round except the last; the method makes that step itself."""
        for _ in range(self.begin() - 1):
            yield from self.worker.local_step(self.worker.steps)


@activity
def receive_all(worker: Worker, mailboxes: Mailboxes, peers: Sequence[int], key: int) -> Process:
    """Receive the messages of `peers`, by rank; workers that have left send nothing."""
    received: dict[int, Vector] = {}
    for peer in peers:
        value = yield from receive(worker, mailboxes, peer, key)
        if value is not None:
            received[peer] = value
    yield from worker.decode(len(received))
    return received


@activity
def receive(worker: Worker, mailboxes: Mailboxes, source: int, key: int) -> Process:
    """Receive a message; return its value, or None if its sender has left."""
    arrival = mailboxes.receive(source, worker.rank, key)
    value = yield from worker.exchange(arrival, "receive", NEIGHBOURS)
    mailboxes.discard(source, worker.rank, key)
    return value


def partner(pool: WorkerPool, peers: Sequence[int], choices: np.random.Generator) -> Worker | None:
    """Choose at random among the neighbours that are not known to be away; None if all are away."""
    detection = pool.recovery.detection
    present = [
        rank
        for rank in peers
        if not pool.workers[rank].is_away or pool.workers[rank].unknown_for(detection) > 0.0
    ]
    return pool.workers[choices.choice(present)] if present else None


def random_pairs(pool: WorkerPool, key: int) -> dict[int, int]:
    """Every worker's partner in a round."""
    order = [int(rank) for rank in pool.choices(0, key).permutation(len(pool.workers))]
    pairs = list(zip(order[::2], order[1::2], strict=False))
    return {**dict(pairs), **{right: left for left, right in pairs}}


_ROUNDING = 1e-9


class PeerEstimates:
    """Estimates of the senders' weights, which their messages keep up to date. An estimate x' of
    weights x becomes x' + C(x - x') with a message, where C is the compression.

    CHOCO-SGD (Koloskova, Stich and Jaggi 2019). Both sides know the estimate, so the next
    difference contains the part that compression left out. The mean of all workers stays the same.
    `rate` is the paper's consensus step size; coarser compression needs a smaller rate.

    >>> topk = Compression(kind="topk", ratio=0.5)
    >>> estimates = PeerEstimates(np.zeros(2), topk, rate=1.0, seed=0)
    >>> weights = np.array([3.0, 2.0])
    >>> estimates.updated(0, 1, weights, 0), estimates.updated(0, 1, weights, 1)
    (array([3., 0.]), array([3., 2.]))
    """

    def __init__(
        self,
        start: Vector,
        compression: Compression,
        *,
        rate: float,
        seed: int,
        shapes: Shapes = (),
    ) -> None:
        self._start, self._compression, self._shapes = start, compression, shapes
        self._rate, self._seed = rate, seed
        self._estimates: dict[tuple[int, Any], Vector] = {}

    def updated(self, source: int, target: Any, weights: Vector, step: int) -> Vector:
        """A target's estimate of a source's weights after a message about them."""
        if self._compression.kind == "none":
            return weights
        before = self._estimates.get((source, target), self._start)
        difference = self._compression.lossy(weights - before, (self._seed, step), self._shapes)
        self._estimates[source, target] = before + difference
        return self._estimates[source, target]

    def averaged(
        self, worker: Worker, row: dict[int, float], vector: Vector, peers: dict[int, Vector]
    ) -> Vector:
        """x_i + rate (sum_j W_ij x'_j - x'_i), for weights x_i, mixing weights W_ij (`row`) and
        estimates x'; without compression x' is x."""
        mean = mixed(row, worker.rank, vector, peers)
        if vector is worker.weights and self._rate == 1.0:
            return mean
        return worker.weights + self._rate * (mean - vector)


def mixed(row: dict[int, float], rank: int, vector: Vector, peers: dict[int, Vector]) -> Vector:
    """sum_j W_ij x_j; the weights of missing peers are added to the worker's own weight. Raises
    `InputError` if the weights of a row do not add up to 1."""
    if abs((whole := sum(row.values())) - 1.0) > _ROUNDING:
        fault = f"the mixing weights of worker {rank}, with its own, add up to {whole:.6g}"
        raise InputError("sharing", fault, "let each row add up to 1")
    kept = row[rank] + sum(weight for j, weight in row.items() if j != rank and j not in peers)
    total = kept * vector
    for j in sorted(peers):
        total = total + row[j] * peers[j]
    return total
