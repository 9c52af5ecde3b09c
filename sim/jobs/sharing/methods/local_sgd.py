"""Local SGD and DiLoCo: workers make many steps on their own weights, then average them, all at
once or piece by piece."""

from itertools import count
from typing import Annotated, ClassVar, Literal

from sim.collectives.compression import Compression
from sim.config.checked import refuse
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.units import Lt
from sim.engine.live_cluster import Process
from sim.jobs.sharing.averaging import Averaging, count_update
from sim.jobs.sharing.barrier import Barrier, Exchange
from sim.jobs.sharing.learning.optimizers import Optimizer, Rule, Steps
from sim.jobs.sharing.learning.task import Vector
from sim.jobs.sharing.plan import FP32, Momentum, Sharing
from sim.jobs.sharing.tables import Count, Natural, NonNegative, Positive
from sim.jobs.sharing.worker import Worker
from sim.jobs.sharing.worker_pool import TrainingLoop, WorkerPool


@dataclass(frozen=True, slots=True, kw_only=True)
class Calendar:
    """When fragments are averaged. Of P fragments in a `period` of H steps, fragment p is sent
    after every step t with t = (p + 1) H / P modulo H. It is merged `overlap` steps later
    (Douillard et al. 2025, arXiv 2501.18512).

    P divides H, so at most one fragment leaves at a time. `overlap` is below H, so a fragment has
    come back before it leaves again.

    >>> calendar = Calendar(period=4, fragments=2, overlap=1)
    >>> [(calendar.leaving(t), calendar.arriving(t)) for t in range(1, 6)]
    [(None, None), (0, None), (None, 0), (1, None), (None, 1)]
    """

    period: int
    fragments: int = 1
    overlap: int = 0

    @property
    def stretch(self) -> int:
        """Steps from one exchange to the next."""
        return self.period // self.fragments

    def leaving(self, steps: int) -> int | None:
        """The fragment that leaves when a worker has done `steps` steps; None if none leaves."""
        number, rest = divmod(steps, self.stretch)
        return None if rest or number < 1 else (number - 1) % self.fragments

    def arriving(self, steps: int) -> int | None:
        """The fragment that is merged when a worker has done `steps` steps; None if none is."""
        return self.leaving(steps - self.overlap)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSGD(Sharing):
    """Workers make `period` steps between averages, which are applied with `outer_rate` and
    `outer_momentum` (with `nesterov` as in DiLoCo).

    Weights are averaged in `fragments`, one at a time, beside the passes of `overlap` steps. When
    it merges a fragment, a worker keeps the share `keep` of its own weights (Streaming DiLoCo).
    Every `site` workers also average among themselves every `site_period` steps (hierarchical local
    SGD).
    """

    sends_fp32: ClassVar[bool] = True

    method: Literal["local_sgd"] = "local_sgd"
    period: Count = 1
    outer_rate: Positive = 1.0
    outer_momentum: Momentum = 0.0
    nesterov: bool = False
    fragments: Count = 1
    overlap: Natural = 0
    keep: Annotated[NonNegative, Lt(1)] = 0.0
    site: Count = 1
    site_period: Count = 1

    def __post_init__(self) -> None:
        if self.period % self.fragments:
            raise ValueError(
                f"period = {self.period} steps for {self.fragments} fragments in turn: "
                "set period to a multiple of fragments"
            )
        if self.overlap >= self.period:
            raise ValueError(f"overlap = {self.overlap} steps; set it below the period")
        if self.site > 1 and self.period % self.site_period:
            raise ValueError(f"site_period = {self.site_period} does not divide the period")
        if not self.outer_momentum:
            refuse(self, "have no effect without outer_momentum; set outer_momentum", "nesterov")
        if not self.overlap:
            refuse(self, "have no effect without overlap; set overlap", "keep")
        if self.site == 1:
            refuse(self, "have no effect without sites; set site", "site_period")

    @property
    def round_steps(self) -> int:
        return self.period

    @property
    def details(self) -> list[str]:
        told = {
            f"{self.fragments} fragments": self.fragments > 1,
            f"{self.overlap} steps of overlap": self.overlap,
            f"sites of {self.site}": self.site > 1,
        }
        return [name for name, holds in told.items() if holds]

    def check(self, workers: int, nodes: int, where: str) -> None:
        if workers % self.site:
            fault = f"site = {self.site} does not divide {workers} workers"
            raise InputError(where, fault, f"set workers to a multiple of {self.site}")
        Sharing.check(self, workers, nodes, where)  # super() fails in a class with slots

    @property
    def outer_optimizer(self) -> Optimizer:
        rule: Rule = "nesterov" if self.nesterov else "momentum" if self.outer_momentum else "sgd"
        return Optimizer(rule=rule, rate=self.outer_rate, beta=self.outer_momentum)

    @property
    def calendar(self) -> Calendar:
        return Calendar(period=self.period, fragments=self.fragments, overlap=self.overlap)

    def kept(self, parameters: float, width: float, workers: int) -> dict[str, float]:
        """Bytes of the weights at the start of the round and of the outer momentum. With overlap,
        the outer gradients on their way count, too."""
        copies = 2 if self.outer_momentum else 1
        kept = Sharing.kept(self, parameters, width, workers)
        kept["outer state"] = copies * FP32 * parameters
        if self.overlap:
            away = min(self.fragments, 1 + (self.overlap - 1) // self.calendar.stretch)
            kept["on their way"] = away / self.fragments * FP32 * parameters
        return kept

    @property
    def outer_reach(self) -> float:
        return self.outer_rate / (1.0 - self.outer_momentum)

    def start(self, pool: WorkerPool) -> None:
        pool.train(local_sgd(self, pool))


def local_sgd(plan: LocalSGD, pool: WorkerPool) -> TrainingLoop:
    """H local steps, then the mean of the workers' weights (Stich 2019; McMahan et al. 2017).

    The mean of (start - weights) is an outer gradient. With outer SGD of rate 1 this is plain
    averaging, with momentum it is SlowMo (Wang et al. 2020), with Nesterov's momentum it is DiLoCo
    (Douillard et al. 2023). The inner optimizer's state is kept between rounds, as in DiLoCo. The
    calendar sets the times of exchanges. Between them the workers of a site average their weights
    (Lin et al. 2020, arXiv 1808.07217: hierarchical local SGD).
    """
    calendar = plan.calendar
    pieces = [Piece(pool, number, plan.fragments) for number in range(plan.fragments)]
    at_once = plan.fragments == 1 and not plan.overlap  # then sites need no average of their own
    sites = [_site(pool, rank, plan.site) for rank in range(0, len(pool.workers), plan.site)]

    def train(worker: Worker) -> Process:
        outer_steps = [OuterSteps(worker, piece, plan.outer_optimizer) for piece in pieces]
        for steps in count(1):
            yield from worker.local_step(steps - 1)
            leaving, arriving = calendar.leaving(steps), calendar.arriving(steps)
            if plan.site > 1 and not (steps % plan.site_period or (at_once and leaving == 0)):
                joined = sites[worker.rank // plan.site].join(worker.rank, steps, worker.weights)
                worker.weights = yield from worker.exchange(joined, "all-reduce of a site")
            if leaving is not None:
                yield from outer_steps[leaving].leave(steps)
            if arriving is not None:
                yield from outer_steps[arriving].merge(plan.keep)
                barrier = pieces[arriving].barrier
                count_update(worker, pool, barrier, calendar.stretch, equal=at_once)

    return train


def _site(pool: WorkerPool, first: int, size: int) -> Barrier:
    """A barrier that averages the uncompressed weights of the `size` workers from rank `first`."""
    averaging = Averaging(pool, compression=Compression(kind="none"))
    action = averaging.of(pool.workers[0].workload.whole)
    return pool.collectives(action, range(first, first + size))


class Piece:
    """A fragment of the weights, which all workers average. It has every P-th element of a task, or
    every P-th layer of a model (the strided fragments of Douillard et al. 2025)."""

    def __init__(self, pool: WorkerPool, number: int, fragments: int) -> None:
        work = pool.workers[0].workload
        self.elements = slice(number, None, fragments)
        layers = work.fragment(number, fragments)
        self.share = layers.parameters / work.parameters
        self.averaging = Averaging(pool, self.elements)
        self.barrier = pool.collectives(self.averaging.of(layers))


class OuterSteps:
    """A worker's part in the averages of a piece. It holds the weights on which all workers agreed
    last, and the state of the outer optimizer, which is equal on all workers."""

    def __init__(self, worker: Worker, piece: Piece, outer: Optimizer) -> None:
        self.worker, self.piece = worker, piece
        self.agreed: Vector = worker.task.start[piece.elements]
        self.outer = Steps(outer, self.agreed.size)
        self.joined: Exchange | None = None

    def leave(self, steps: int) -> Process:
        """Send the outer gradient: the difference of the agreed and the worker's weights."""
        worker, piece = self.worker, self.piece
        yield from worker.encode_part(piece.share)
        gone = self.agreed - worker.weights[piece.elements]
        sent = worker.compressed(gone, steps, piece.elements)
        self.joined = piece.barrier.join(worker.rank, steps, sent)

    def merge(self, keep: float) -> Process:
        """Wait for the mean gradient and make the outer step, which changes the agreed weights. The
        worker goes on with `keep` x its own + (1 - `keep`) x the agreed weights."""
        worker, piece = self.worker, self.piece
        assert self.joined is not None
        gradient = yield from worker.exchange(self.joined, "all-reduce")
        yield from worker.decode(piece.averaging.messages(piece.barrier), piece.share)
        self.agreed = self.outer.step(self.agreed, gradient)
        weights, weight = worker.weights.copy(), worker.weights[piece.elements]
        weights[piece.elements] = (
            self.agreed if not keep else keep * weight + (1.0 - keep) * self.agreed
        )
        worker.weights = weights
