"""Gossip: workers average with a few neighbours; nobody holds the weights of all."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sim.config.errors import InputError
from sim.engine.live_cluster import Process
from sim.program.causes import COMMUNICATION, NEIGHBOURS
from sim.sharing.graphs import Neighbours, exponential_hops, graph, mixing
from sim.sharing.mailboxes import Mailboxes
from sim.sharing.peer_estimates import PeerEstimates
from sim.sharing.plan import Sharing
from sim.sharing.tables import Positive, refuse
from sim.sharing.worker import Worker
from sim.sharing.worker_pool import TrainingLoop, WorkerPool

Vector = NDArray[np.float64]

_TITLES = {
    "d_psgd": "D-PSGD",
    "ad_psgd": "AD-PSGD",
    "sgp": "push-sum",
    "random_pairs": "random pairs",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gossip(Sharing):
    """An `algorithm` on a `graph` by name or edges; with `overlap` messages go beside the passes.

    With `rendezvous` messages leave when their receivers are ready; `consensus` is CHOCO-SGD's step
    size, below 1 for coarse compression.
    """

    method: Literal["gossip"] = "gossip"
    algorithm: Literal["d_psgd", "ad_psgd", "sgp", "random_pairs"] = "d_psgd"
    graph: str | tuple[tuple[int, ...], ...] = "ring"
    overlap: bool = False
    rendezvous: bool = False
    consensus: Positive = 1.0

    def __post_init__(self) -> None:
        kind = self.compression.kind
        if self.algorithm == "sgp" and kind not in ("none", "fp16", "int8"):
            raise ValueError(f'push-sum needs whole sums: "{kind}" sends a part; write "fp16"')
        if self.algorithm == "ad_psgd" and self.rendezvous:
            raise ValueError("ad_psgd does not wait for its partners; leave rendezvous out")
        if self.algorithm in ("sgp", "random_pairs"):
            refuse(self, "say nothing: this algorithm has partners of its own", "graph")
        if self.algorithm == "random_pairs":
            refuse(self, "say nothing: a pair averages what both have stepped to", "overlap")
        if kind == "none":
            refuse(self, "say nothing without [sharing.compression]", "consensus")

    @property
    def details(self) -> list[str]:
        return [_TITLES[self.algorithm], *(["overlapped"] if self.overlap else [])]

    def check(self, workers: int, nodes: int, where: str) -> None:
        if workers < 2:
            raise InputError(where, "gossip needs at least 2 workers", "set workers = 2")
        self.neighbours(workers, where)
        Sharing.check(self, workers, nodes, where)  # super() does not know a class with slots

    def neighbours(self, workers: int, where: str = "") -> Neighbours:
        """Of every worker. Raises `InputError` for a graph that does not connect them."""
        return graph(self.graph, workers, where=f"{where}.graph")

    def kept(self, parameters: float, width: float, workers: int) -> dict[str, float]:
        """Weights of every neighbour as they arrive, one where a worker has one at a time."""
        most = max(map(len, self.neighbours(workers))) if self.algorithm == "d_psgd" else 1
        own = Sharing.kept(self, parameters, width, workers)
        return {**own, "neighbours' weights": most * width * parameters}

    def start(self, pool: WorkerPool) -> None:
        loops = {"d_psgd": d_psgd, "ad_psgd": ad_psgd, "sgp": push_sum, "random_pairs": in_pairs}
        pool.train(loops[self.algorithm](self, pool))


def d_psgd(plan: Gossip, pool: WorkerPool) -> TrainingLoop:
    """Average with all neighbours, then step (Lian et al. 2017, algorithm 1).

    x_i <- sum_j W_ij x_j - rate g(x_i). With overlap the exchange runs beside the gradient, which
    the algorithm allows: both start from x_i.
    """
    mailboxes, estimates = pool.connect(rendezvous=plan.rendezvous), _estimates(plan, pool)
    neighbours = plan.neighbours(len(pool.workers))
    rows = mixing(neighbours)

    def send(worker: Worker, step: int) -> Process:
        yield from worker.encode_part(1.0)
        own = estimates.updated(worker.rank, "all", worker.weights, step)
        mailboxes.send(worker.rank, neighbours[worker.rank], step, worker.message, own)
        return own

    def train(worker: Worker) -> Process:
        peers = neighbours[worker.rank]
        for step in count():
            if plan.overlap:
                own = yield from send(worker, step)
                mailboxes.expect(peers, worker.rank, step)
            gradient = yield from worker.compute(step)
            if not plan.overlap:
                own = yield from send(worker, step)
            received = yield from _receive_all(worker, mailboxes, peers, step)
            worker.weights = estimates.averaged(worker, rows[worker.rank], own, received)
            yield from worker.apply(gradient)
            _count_update(worker, pool)

    return train


def _estimates(plan: Gossip, pool: WorkerPool) -> PeerEstimates:
    return PeerEstimates(pool.task.start, plan.compression, rate=plan.consensus, seed=plan.seed)


def _receive_all(worker: Worker, mailboxes: Mailboxes, peers: Sequence[int], step: int) -> Process:
    """What the neighbours have sent; those that are gone send nothing."""
    received: dict[int, Vector] = {}
    for peer in peers:
        value = yield from _receive(worker, mailboxes, peer, step)
        if value is not None:
            received[peer] = value
    yield from worker.decode(len(received))
    return received


def _receive(worker: Worker, mailboxes: Mailboxes, source: int, step: int) -> Process:
    arrival = mailboxes.receive(source, worker.rank, step)
    value = yield from worker.exchange(arrival, "receive", NEIGHBOURS)
    mailboxes.discard(source, worker.rank, step)
    return value


def ad_psgd(plan: Gossip, pool: WorkerPool) -> TrainingLoop:
    """Step, and average with one random neighbour, atomically (Lian et al. 2018, algorithm 1).

    The neighbour is not asked and does not stop computing: its gradient was taken on weights that
    have changed since. With overlap the exchange runs beside the gradient.
    """
    neighbours, estimates = plan.neighbours(len(pool.workers)), _estimates(plan, pool)

    def train(worker: Worker) -> Process:
        choices, overlap = pool.choices(worker.rank), plan.overlap
        for step in count():
            read = worker.version
            gradient: Any = None if overlap else (yield from worker.compute(step))
            yield from worker.encode_part(1.0)
            partner = _partner(pool, neighbours[worker.rank], choices)
            averaging = pool.cluster.start(
                _average(worker, partner, estimates, pool.recovery.detection)
            )
            gradient = (yield from worker.compute(step)) if overlap else gradient
            yield from worker.wait(averaging, COMMUNICATION)
            yield from worker.decode()
            yield from worker.apply(gradient)
            pool.record.update(worker.version - read - 1, worker.workload.batch, pool.average)

    return train


def _partner(pool: WorkerPool, peers: Sequence[int], choices: np.random.Generator) -> Worker | None:
    """One of the neighbours that are there, as far as anybody knows."""
    detection = pool.recovery.detection
    present = [
        rank
        for rank in peers
        if not pool.workers[rank].is_away or pool.workers[rank].unknown_for(detection) > 0.0
    ]
    return pool.workers[choices.choice(present)] if present else None


def _average(
    worker: Worker, partner: Worker | None, estimates: PeerEstimates, detection: float
) -> Process:
    """Both average; one that is away does not answer, which is known when its failure is."""
    if partner is not None and partner.is_away:
        yield worker.cluster.sleep(partner.unknown_for(detection))
        partner = None
    if partner is not None:
        began = worker.cluster.now
        yield worker.cluster.swap(worker.message, worker.endpoint, partner.endpoint)
        half = {worker.rank: 0.5, partner.rank: 0.5}
        own = estimates.updated(worker.rank, partner.rank, worker.weights, worker.version)
        other = estimates.updated(partner.rank, worker.rank, partner.weights, partner.version)
        worker.weights = estimates.averaged(worker, half, own, {partner.rank: other})
        partner.weights = estimates.averaged(partner, half, other, {worker.rank: own})
        partner.version += 1
        worker.note(f"average with {partner.rank}", NEIGHBOURS, began)
    worker.version += 1


def push_sum(plan: Gossip, pool: WorkerPool) -> TrainingLoop:
    """Stochastic gradient push (Assran et al. 2019, algorithm 1) on the directed exponential graph.

    In step k everyone sends half of (x, w) to the worker 2^k places on, keeps half and adds what
    arrives; the gradient is taken at z = x / w. With overlap (their OSGP) nobody waits for the
    message of its own step, but for that of the step before. What rounding a message to fp16 or
    int8 leaves out stays with its sender.
    """
    n, mailboxes = len(pool.workers), pool.connect(rendezvous=plan.rendezvous)
    hops, late = exponential_hops(n), 1 if plan.overlap else 0

    def train(worker: Worker) -> Process:
        mass, worker.push_weight = worker.weights, 1.0
        for step in count():
            gradient = yield from worker.compute(step)
            yield from worker.optimizer_pass()
            mass, worker.state = worker.optimizer.step(mass, gradient, worker.state)
            yield from worker.encode_part(1.0)
            half = plan.compression.lossy(0.5 * mass, (worker.seed, step))
            mass, worker.push_weight = mass - half, 0.5 * worker.push_weight
            hop = hops[step % len(hops)]
            target, source = (worker.rank + hop) % n, (worker.rank - hop) % n
            sent = (half, worker.push_weight)
            mailboxes.send(worker.rank, [target], step, worker.message, sent)
            mailboxes.expect([source], worker.rank, step)
            if step >= late:
                source = (worker.rank - hops[(step - late) % len(hops)]) % n
                received = yield from _receive(worker, mailboxes, source, step - late)
                if received is not None:
                    mass, worker.push_weight = mass + received[0], worker.push_weight + received[1]
                    yield from worker.decode()
            worker.weights = mass / worker.push_weight
            _count_update(worker, pool, late)

    return train


def in_pairs(plan: Gossip, pool: WorkerPool) -> TrainingLoop:
    """Every round all workers are paired at random; each steps, then averages with its partner.

    Boyd et al. 2006 (randomised gossip), in rounds. With an odd number one sits out.
    """
    mailboxes, estimates = pool.connect(rendezvous=plan.rendezvous), _estimates(plan, pool)
    pairs = [random_pairs(pool, 0)]

    def train(worker: Worker) -> Process:
        for step in count():
            gradient = yield from worker.compute(step)
            yield from worker.apply(gradient)
            while len(pairs) <= step:
                pairs.append(random_pairs(pool, len(pairs)))
            partner = pairs[step].get(worker.rank)
            if partner is not None:
                yield from worker.encode_part(1.0)
                own = estimates.updated(worker.rank, partner, worker.weights, step)
                mailboxes.send(worker.rank, [partner], step, worker.message, own)
                received = yield from _receive_all(worker, mailboxes, (partner,), step)
                half = {worker.rank: 0.5, partner: 0.5}
                worker.weights = estimates.averaged(worker, half, own, received)
            _count_update(worker, pool)

    return train


def random_pairs(pool: WorkerPool, step: int) -> dict[int, int]:
    """Every worker's partner in a round."""
    order = [int(rank) for rank in pool.choices(0, step).permutation(len(pool.workers))]
    pairs = list(zip(order[::2], order[1::2], strict=False))
    return {**dict(pairs), **{right: left for left, right in pairs}}


def _count_update(worker: Worker, pool: WorkerPool, staleness: int = 0) -> None:
    worker.version += 1
    pool.record.update(staleness, worker.workload.batch, pool.average)
