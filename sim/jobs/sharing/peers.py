"""The elements of gossip: local steps, messages of peers, partners."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sim.engine.live_cluster import Process
from sim.jobs.sharing.mailboxes import Mailboxes
from sim.jobs.sharing.worker import Worker
from sim.jobs.sharing.worker_pool import WorkerPool
from sim.program.causes import NEIGHBOURS

Vector = NDArray[np.float64]


class LocalPeriods:
    """How many steps a worker takes before it averages: `period`, or geometrically many with that
    mean (the random number of local steps of SwarmSGD; Nadiradze et al. 2021)."""

    def __init__(self, pool: WorkerPool, worker: Worker, period: int, *, geometric: bool) -> None:
        self.worker, self.period = worker, period
        self._draws = pool.choices(3, worker.rank) if geometric else None
        self.steps = period

    def begin(self) -> int:
        """The steps of a new round."""
        if self._draws is not None:
            self.steps = int(self._draws.geometric(1.0 / self.period))
        return self.steps

    def all_but_one(self) -> Process:
        """The steps of a round on the worker's own weights; the last is the method's."""
        for _ in range(self.begin() - 1):
            yield from self.worker.local_step(self.worker.steps)


def receive_all(worker: Worker, mailboxes: Mailboxes, peers: Sequence[int], key: int) -> Process:
    """Messages of the neighbours; workers that are gone send nothing."""
    received: dict[int, Vector] = {}
    for peer in peers:
        value = yield from receive(worker, mailboxes, peer, key)
        if value is not None:
            received[peer] = value
    yield from worker.decode(len(received))
    return received


def receive(worker: Worker, mailboxes: Mailboxes, source: int, key: int) -> Process:
    """A message; None where its sender is gone."""
    arrival = mailboxes.receive(source, worker.rank, key)
    value = yield from worker.exchange(arrival, "receive", NEIGHBOURS)
    mailboxes.discard(source, worker.rank, key)
    return value


def partner(pool: WorkerPool, peers: Sequence[int], choices: np.random.Generator) -> Worker | None:
    """A neighbour that is not known to be gone."""
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
