"""Gossip: each worker averages with a few neighbours; nobody holds the weights of all workers."""

from itertools import count
from typing import Any, Literal

from sim.config.checked import refuse
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.near import nearest
from sim.engine.live_cluster import Process
from sim.jobs.sharing.graphs import (
    NAMED,
    Neighbours,
    exponential_hops,
    graph,
    mean_square_degree,
    mixing,
)
from sim.jobs.sharing.learning.task import shapes
from sim.jobs.sharing.peers import (
    LocalPeriods,
    PeerEstimates,
    partner,
    random_pairs,
    receive,
    receive_all,
)
from sim.jobs.sharing.plan import OF_UPDATE, Sharing
from sim.jobs.sharing.tables import Count, Positive
from sim.jobs.sharing.worker import Worker
from sim.jobs.sharing.worker_pool import TrainingLoop, WorkerPool
from sim.jobs.sharing.workload import Workload
from sim.program.causes import COMMUNICATION, NEIGHBOURS

_TITLES = {
    "d_psgd": "D-PSGD",
    "ad_psgd": "AD-PSGD",
    "sgp": "push-sum",
    "random_pairs": "random pairs",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gossip(Sharing):
    """Workers average by an `algorithm` on a `graph` (a name or a list of edges) after every
    `period` local steps. With `geometric`, the number of steps is drawn, with `period` as its mean
    (SwarmSGD).

    With `overlap` messages travel beside the passes; with `rendezvous` a message leaves when its
    receiver is ready. `consensus` is CHOCO-SGD's step size, below 1 for coarse compression.
    """

    method: Literal["gossip"] = "gossip"
    algorithm: Literal["d_psgd", "ad_psgd", "sgp", "random_pairs"] = "d_psgd"
    period: Count = 1
    geometric: bool = False
    graph: str | tuple[tuple[int, ...], ...] = "ring"
    overlap: bool = False
    rendezvous: bool = False
    consensus: Positive = 1.0

    def __post_init__(self) -> None:
        kind = self.compression.kind
        if isinstance(self.graph, str) and self.graph not in NAMED:
            raise ValueError(f"no graph named {self.graph!r}; {nearest(self.graph, [*NAMED])}")
        if self.algorithm == "sgp" and kind not in ("none", "fp16", "int8"):
            raise ValueError(f'push-sum needs whole sums: "{kind}" sends a part; write "fp16"')
        if self.algorithm == "ad_psgd" and self.rendezvous:
            raise ValueError("ad_psgd does not wait for its partners; leave rendezvous out")
        if self.algorithm in ("sgp", "random_pairs"):
            why = f'have no effect with algorithm = "{self.algorithm}"; choose another algorithm'
            refuse(self, why, "graph")
        if self.algorithm == "random_pairs":
            refuse(self, why, "overlap")
        if self.period == 1:
            refuse(self, "have no effect with period = 1; raise period", "geometric")
        if kind == "none":
            refuse(self, "have no effect without [sharing.compression]; add it", "consensus")

    @property
    def fails_alone(self) -> bool:
        return self.algorithm == "ad_psgd"

    @property
    def round_steps(self) -> int:
        return self.period

    @property
    def details(self) -> list[str]:
        several = self.period > 1
        title = "SwarmSGD" if several and self.algorithm == "ad_psgd" else _TITLES[self.algorithm]
        steps = f"{self.period} local steps" + (" in the mean" if self.geometric else "")
        told = {title: True, steps: several, "overlapped": self.overlap}
        return [name for name, holds in told.items() if holds]

    def check(self, workers: int, nodes: int, where: str) -> None:
        if workers < 2:
            raise InputError(where, "gossip needs at least 2 workers", "set workers = 2")
        self.neighbours(workers, where)
        Sharing.check(self, workers, nodes, where)  # super() fails in a class with slots

    def neighbours(self, workers: int, where: str = "") -> Neighbours:
        """The neighbours of every worker. Raises `InputError` for a graph that does not connect all
        workers."""
        return graph(self.graph, workers, where=f"{where}.graph")

    def update_seconds(self, workers: int, work: Workload) -> float:
        """Seconds grow with the squared number of neighbours, as messages to all neighbours share
        links with the messages of these neighbours."""
        squares = 1.0
        if self.algorithm == "d_psgd":
            squares = mean_square_degree(self.graph, workers)
        return OF_UPDATE + 1e-6 * squares

    def kept(self, parameters: float, width: float, workers: int) -> dict[str, float]:
        """With D-PSGD a worker keeps the arriving weights of every neighbour, otherwise the
        weights of one neighbour at a time."""
        most = max(map(len, self.neighbours(workers))) if self.algorithm == "d_psgd" else 1
        kept = Sharing.kept(self, parameters, width, workers)
        return {**kept, "neighbours' weights": most * width * parameters}

    def start(self, pool: WorkerPool) -> None:
        loops = {"d_psgd": d_psgd, "ad_psgd": ad_psgd, "sgp": push_sum, "random_pairs": in_pairs}
        pool.train(loops[self.algorithm](self, pool))


def d_psgd(plan: Gossip, pool: WorkerPool) -> TrainingLoop:
    """Average with all neighbours, then step (Lian et al. 2017).

    x_i <- sum_j W_ij x_j - rate g(x_i), for the weights x_i of worker i and the mixing weights
    W_ij. With overlap the exchange runs beside the gradient, which the algorithm allows: both start
    from x_i. Further local steps between averages follow Koloskova et al. 2020 (arXiv 2003.10422).
    """
    mailboxes, estimates = pool.connect(rendezvous=plan.rendezvous), _estimates(plan, pool)
    neighbours = plan.neighbours(len(pool.workers))
    rows = mixing(neighbours)

    def send(worker: Worker, step: int) -> Process:
        yield from worker.encode_part(1.0)
        estimate = estimates.updated(worker.rank, "all", worker.weights, step)
        mailboxes.send(worker.rank, neighbours[worker.rank], step, worker.message, estimate)
        return estimate

    def train(worker: Worker) -> Process:
        peers, local = neighbours[worker.rank], _local(plan, pool, worker)
        for number in count():
            yield from local.all_but_one()
            if plan.overlap:
                estimate = yield from send(worker, number)
                mailboxes.expect(peers, worker.rank, number)
            gradient = yield from worker.compute(worker.steps)
            if not plan.overlap:
                estimate = yield from send(worker, number)
            received = yield from receive_all(worker, mailboxes, peers, number)
            worker.weights = estimates.averaged(worker, rows[worker.rank], estimate, received)
            yield from worker.apply(gradient)
            _count_update(worker, pool, local.steps)

    return train


def _estimates(plan: Gossip, pool: WorkerPool) -> PeerEstimates:
    return PeerEstimates(
        pool.task.start,
        plan.compression,
        rate=plan.consensus,
        seed=plan.seed,
        shapes=shapes(pool.task),
    )


def _local(plan: Gossip, pool: WorkerPool, worker: Worker) -> LocalPeriods:
    return LocalPeriods(pool, worker, plan.period, geometric=plan.geometric)


def ad_psgd(plan: Gossip, pool: WorkerPool) -> TrainingLoop:
    """Step, and average with one random neighbour, atomically (Lian et al. 2018).

    The neighbour is not asked and does not stop computing. So its weights have changed when its
    gradient is ready. With overlap the exchange runs beside the gradient. With further local steps
    the method is non-blocking SwarmSGD (Nadiradze et al. 2021, arXiv 1910.12308).
    """
    neighbours, estimates = plan.neighbours(len(pool.workers)), _estimates(plan, pool)

    def train(worker: Worker) -> Process:
        choices, overlap = pool.choices(worker.rank), plan.overlap
        local, detection = _local(plan, pool, worker), pool.recovery.detection
        while True:
            read = worker.version
            yield from local.all_but_one()
            gradient: Any = None if overlap else (yield from worker.compute(worker.steps))
            yield from worker.encode_part(1.0)
            other = partner(pool, neighbours[worker.rank], choices)
            averaging = pool.cluster.start(_average(worker, other, estimates, detection))
            gradient = (yield from worker.compute(worker.steps)) if overlap else gradient
            yield from worker.wait(averaging, COMMUNICATION)
            yield from worker.decode()
            yield from worker.apply(gradient)
            samples = local.steps * worker.workload.batch
            pool.record.update(worker.version - read - 1, samples, pool.average)

    return train


def _average(
    worker: Worker, other: Worker | None, estimates: PeerEstimates, detection: float
) -> Process:
    """Average the weights of both workers. A worker that is away does not answer; the first worker
    gives up when the failure is detected."""
    if other is not None and other.is_away:
        yield worker.cluster.sleep(other.unknown_for(detection))
        other = None
    if other is not None:
        began = worker.cluster.now
        yield worker.cluster.swap(worker.message, worker.endpoint, other.endpoint)
        half = {worker.rank: 0.5, other.rank: 0.5}
        estimate = estimates.updated(worker.rank, other.rank, worker.weights, worker.version)
        other_estimate = estimates.updated(other.rank, worker.rank, other.weights, other.version)
        worker.weights = estimates.averaged(worker, half, estimate, {other.rank: other_estimate})
        other.weights = estimates.averaged(other, half, other_estimate, {worker.rank: estimate})
        other.version += 1
        worker.note(f"average with {other.rank}", NEIGHBOURS, began)
    worker.version += 1


def push_sum(plan: Gossip, pool: WorkerPool) -> TrainingLoop:
    """Stochastic gradient push (Assran et al. 2019) on the directed exponential graph.

    Every worker has a sum x of weights and the sum w of their shares (1 at first). In round k it
    sends half of (x, w) to the worker 2^k places on, keeps the other half and adds the half that
    arrives. The gradient is taken at z = x / w. With overlap (overlap SGP) a worker does not wait
    for the message of this round, but for the message that was sent `period` steps ago. The
    rounding error of a message in fp16 or int8 stays with its sender.
    """
    n, mailboxes = len(pool.workers), pool.connect(rendezvous=plan.rendezvous)
    hops, late = exponential_hops(n), 1 if plan.overlap else 0

    def train(worker: Worker) -> Process:
        worker.push_weight = 1.0
        local = _local(plan, pool, worker)
        for number in count():
            for _ in range(local.begin()):
                gradient = yield from worker.compute(worker.steps)
                yield from worker.optimizer_pass()
                mass = worker.optimizer.step(worker.push_weight * worker.weights, gradient)
                worker.weights = mass / worker.push_weight
            yield from worker.encode_part(1.0)
            half = plan.compression.lossy(0.5 * mass, (worker.seed, number))
            mass, worker.push_weight = mass - half, 0.5 * worker.push_weight
            hop = hops[number % len(hops)]
            target, source = (worker.rank + hop) % n, (worker.rank - hop) % n
            sent = (half, worker.push_weight)
            mailboxes.send(worker.rank, [target], number, worker.message, sent)
            mailboxes.expect([source], worker.rank, number)
            if number >= late:
                source = (worker.rank - hops[(number - late) % len(hops)]) % n
                received = yield from receive(worker, mailboxes, source, number - late)
                if received is not None:
                    mass, worker.push_weight = mass + received[0], worker.push_weight + received[1]
                    yield from worker.decode()
            worker.weights = mass / worker.push_weight
            _count_update(worker, pool, local.steps, late)

    return train


def in_pairs(plan: Gossip, pool: WorkerPool) -> TrainingLoop:
    """In every round workers are paired at random; each steps, then averages with its partner.

    Boyd et al. 2006 (randomised gossip), in rounds. If the number of workers is odd, a worker is
    left without a partner in each round.
    """
    mailboxes, estimates = pool.connect(rendezvous=plan.rendezvous), _estimates(plan, pool)
    pairs = [random_pairs(pool, 0)]

    def train(worker: Worker) -> Process:
        local = _local(plan, pool, worker)
        for number in count():
            yield from local.all_but_one()
            yield from worker.local_step(worker.steps)
            while len(pairs) <= number:
                pairs.append(random_pairs(pool, len(pairs)))
            other = pairs[number].get(worker.rank)
            if other is not None:
                yield from worker.encode_part(1.0)
                estimate = estimates.updated(worker.rank, other, worker.weights, number)
                mailboxes.send(worker.rank, [other], number, worker.message, estimate)
                received = yield from receive_all(worker, mailboxes, (other,), number)
                half = {worker.rank: 0.5, other: 0.5}
                worker.weights = estimates.averaged(worker, half, estimate, received)
            _count_update(worker, pool, local.steps)

    return train


def _count_update(worker: Worker, pool: WorkerPool, steps: int, staleness: int = 0) -> None:
    worker.version += 1
    pool.record.update(staleness, steps * worker.workload.batch, pool.average)
