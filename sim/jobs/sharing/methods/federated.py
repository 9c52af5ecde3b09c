"""Federated averaging: in each round some clients train; their data may be unequal, and they may go
offline and come back."""

from collections.abc import Iterator
from itertools import count
from math import exp
from typing import Annotated, ClassVar, Literal

import numpy as np

from sim.config.dataclass import dataclass
from sim.config.units import Gt, Le, Lt, Seconds
from sim.engine.live_cluster import Process
from sim.jobs.sharing.learning.task import Vector
from sim.jobs.sharing.plan import ServerBased
from sim.jobs.sharing.tables import Count, NonNegative
from sim.jobs.sharing.worker import Worker, WorkerLost, mean
from sim.jobs.sharing.worker_pool import WorkerPool
from sim.jobs.sharing.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Federated(ServerBased):
    """In each round a `fraction` of the available workers train. A worker with the mean share of
    the data makes `period` steps; shares follow a power law with the exponent `unequal`. Workers
    stay online and offline in turn, for mean times `online` and `offline`. A round ends without
    waiting for its last workers; `late` is their share."""

    fails_alone: ClassVar[bool] = True
    waits: ClassVar[bool] = True  # workers wait for the others of a round

    method: Literal["federated"] = "federated"
    period: Count = 1
    fraction: Annotated[float, Gt(0), Le(1)] = 1.0
    unequal: NonNegative = 0.0
    online: Seconds = 0.0
    offline: Seconds = 0.0
    late: Annotated[NonNegative, Lt(1)] = 0.0

    def __post_init__(self) -> None:
        if bool(self.online) != bool(self.offline):
            raise ValueError("online and offline take turns: give both, or neither")

    @property
    def round_steps(self) -> int:
        return self.period

    def kept(self, parameters: float, width: float, workers: int) -> dict[str, float]:
        kept = ServerBased.kept(self, parameters, width, workers)
        return {**kept, "start of the round": width * parameters}

    def averaged(self, workers: int) -> float:
        return max(1.0, self.fraction * workers * (1.0 - self.late))

    def update_seconds(self, workers: int, work: Workload) -> float:
        """Seconds of an update, and of the search for available clients, once in `period` steps."""
        there = workers * self.online / (self.online + self.offline) if self.online else workers
        looks = workers / min(there, 1.0)
        return ServerBased.update_seconds(self, workers, work) + 2e-6 * looks / self.period

    def tries(self, seconds: float, exchange: float) -> float:
        """exp(T / `online`) for a round of T seconds: times online are exponential, so a client
        stays until the end of its round with chance exp(-T / `online`)."""
        if not self.online:
            return 1.0
        return exp(min((self.period * seconds + exchange) / self.online, 100.0))

    def start(self, pool: WorkerPool) -> None:
        pool.cluster.start(rounds(self, pool))


def rounds(plan: Federated, pool: WorkerPool) -> Process:
    """In each round some clients train; the mean of their changes, weighted by their shares of the
    data, moves the weights (McMahan et al. 2017).

    If a share of the clients may be late, the round ends without these clients (over-selection;
    Bonawitz et al. 2019).
    """
    clients = [Client(plan, pool, worker) for worker in pool.workers]
    for number in count():
        chosen = yield from _chosen(plan, pool, clients, number)
        if not chosen:
            break
        this_round = FederatedRound(plan, pool, number, len(chosen))
        for client in chosen:
            pool.cluster.start(client.take_part(this_round))
        yield this_round.complete
        if this_round.answers:
            _apply(pool, clients, this_round.answers)


def _apply(pool: WorkerPool, clients: list["Client"], answers: dict[int, Vector]) -> None:
    server, shares = pool.server, {rank: clients[rank].share for rank in answers}
    server.weights = server.weights - mean(answers, shares)
    samples = sum(clients[rank].steps * pool.workers[rank].workload.batch for rank in answers)
    server.count(0, samples)


def _chosen(plan: Federated, pool: WorkerPool, clients: list["Client"], number: int) -> Process:
    """Choose the participants of a round among the free clients; wait until a client is free."""
    while not all(worker.lost for worker in pool.workers):
        free = [client for client in clients if client.is_free]
        if free:
            count = max(1, round(plan.fraction * len(free)))
            picked = pool.choices(1, number).choice(len(free), count, replace=False)
            return [free[place] for place in sorted(picked)]
        yield pool.cluster.sleep(max(plan.offline / 10.0, 1e-3))
    return []


class FederatedRound:
    """The answers of a round; `complete` fires when enough have come, or no participant is left."""

    def __init__(self, plan: Federated, pool: WorkerPool, number: int, participants: int) -> None:
        self.number, self.record = number, pool.record
        self.pending = participants
        self.wanted = max(1, round(participants * (1.0 - plan.late)))
        self.answers: dict[int, Vector] = {}
        self.complete = pool.cluster.event()

    def answer(self, rank: int, change: Vector) -> None:
        """Take a participant's change of the weights; a late change is dropped."""
        if self.complete.triggered:
            self.record.dropped += 1
        else:
            self.answers[rank] = change

    def finish_one(self) -> None:
        """Note that a participant has finished, with an answer or without."""
        self.pending -= 1
        enough = len(self.answers) >= self.wanted or not self.pending
        if enough and not self.complete.triggered:
            self.complete.succeed()


class Client:
    """A worker with its share of the data and its `steps` in a round (E n_k / B in the paper).

    Shares follow a power law of the plan's exponent `unequal`; a client with the mean share does
    `period` steps.
    """

    def __init__(self, plan: Federated, pool: WorkerPool, worker: Worker) -> None:
        self.pool, self.worker = pool, worker
        shares = [(1.0 + peer.rank) ** -plan.unequal for peer in pool.workers]
        self.share = shares[worker.rank] * len(shares) / sum(shares)
        self.steps = max(1, round(plan.period * self.share))
        self.availability = Availability(_changes(plan, pool.choices(2, worker.rank)))
        self.is_busy = False

    @property
    def is_free(self) -> bool:
        online = self.availability.online(self.worker.cluster.now)
        return online and not (self.is_busy or self.worker.lost)

    def take_part(self, this_round: FederatedRound) -> Process:
        """Pull, train, push. The work is lost if the client goes offline or fails for good."""
        worker, server, self.is_busy = self.worker, self.pool.server, True
        began = worker.cluster.now
        try:
            yield from server.pull(worker)
            yield from worker.local_steps(this_round.number, self.steps)
            if self.availability.online_since(began, worker.cluster.now):
                sent = yield from worker.encode(worker.fetched - worker.weights, this_round.number)
                yield from server.push(worker)
                this_round.answer(worker.rank, sent)
            else:
                self.pool.record.dropped += 1
        except WorkerLost:
            self.pool.lose(worker)
            yield worker.cluster.sleep(self.pool.recovery.detection)
        self.is_busy = False
        this_round.finish_one()


class Availability:
    """Whether a client is online. It is online at first; `changes` are the moments at which it goes
    offline, comes back, and so on."""

    def __init__(self, changes: Iterator[float]) -> None:
        self._changes = changes
        self._last, self._next = 0.0, next(changes, float("inf"))
        self._online = True

    def online(self, now: float) -> bool:
        """Whether the client is online at a moment; later calls may only ask for later moments."""
        while self._next <= now:
            self._online = not self._online
            self._last, self._next = self._next, next(self._changes, float("inf"))
        return self._online

    def online_since(self, moment: float, now: float) -> bool:
        """Whether the client has been online all the time from `moment` until now."""
        return self.online(now) and self._last <= moment


def _changes(plan: Federated, rng: np.random.Generator) -> Iterator[float]:
    """Yield the moments of changes: times online and offline are exponential and take turns. A
    client that always stays online has no changes."""
    moment = 0.0
    while plan.online:
        for time in (plan.online, plan.offline):
            moment += float(rng.exponential(time))
            yield moment
