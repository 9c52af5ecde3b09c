"""Workers that train together: what every method of sharing updates is given."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count

import numpy as np
from numpy.typing import NDArray

from sim.engine.live_cluster import LiveCluster, Process
from sim.sharing.barrier import Action, Barrier
from sim.sharing.clocks import Clocks
from sim.sharing.learning.task import LearningTask
from sim.sharing.mailboxes import Mailboxes
from sim.sharing.server import Server
from sim.sharing.update_record import UpdateRecord
from sim.sharing.worker import Worker, WorkerLost

Vector = NDArray[np.float64]
TrainingLoop = Callable[[Worker], Process]


@dataclass(slots=True)
class WorkerPool:
    """The workers, the cluster they run on, and what they share.

    `steps` are those of each worker, as many as fit in where there is a time limit `until`. `seed`
    feeds the choices of the method itself (partners, participants), apart from data and stragglers.
    """

    cluster: LiveCluster
    workers: list[Worker]
    task: LearningTask
    record: UpdateRecord
    steps: int
    until: float | None
    seed: int
    servers: Server | None = None
    mailboxes: Mailboxes | None = None
    version: int = 0
    _on_loss: list[Callable[[int], None]] = field(default_factory=list)

    def train(self, loop: TrainingLoop) -> None:
        """Every worker runs the loop until it has done its steps or fails for good."""
        for worker in self.workers:
            self.cluster.start(self._training(worker, loop))

    def _training(self, worker: Worker, loop: TrainingLoop) -> Process:
        try:
            yield from loop(worker)
        except WorkerLost:
            worker.lost = True
            for leave in self._on_loss:
                leave(worker.rank)
        worker.ended = self.cluster.now

    def run(self) -> None:
        """Let time pass until nothing is left to happen, or until the time limit."""
        self.cluster.run(None if self.until is None else self.cluster.sleep(self.until))

    def step_numbers(self) -> Iterator[int]:
        """The steps of one worker: so many, or without end where the time limits them."""
        return iter(range(self.steps)) if self.until is None else count()

    def round_numbers(self, period: int) -> Iterator[int]:
        """The rounds of `period` steps that make up the steps of one worker."""
        return iter(range(max(1, self.steps // period))) if self.until is None else count()

    # What they share.

    def on_loss(self, leave: Callable[[int], None]) -> None:
        """Call this with the rank of every worker that fails for good."""
        self._on_loss.append(leave)

    @property
    def server(self) -> Server:
        assert self.servers is not None, "this method needs servers"
        return self.servers

    def barrier(self, act: Action) -> Barrier:
        """Rounds in which all workers take part."""
        barrier = Barrier(self.cluster, [worker.rank for worker in self.workers], act)
        self.on_loss(barrier.leave)
        return barrier

    def clocks(self) -> Clocks:
        clocks = Clocks(self.cluster, [worker.rank for worker in self.workers])
        self.on_loss(clocks.leave)
        return clocks

    def connect(self, *, rendezvous: bool) -> Mailboxes:
        """Mailboxes of all workers, for messages between them."""
        endpoints = {worker.rank: worker.endpoint for worker in self.workers}
        self.mailboxes = Mailboxes(self.cluster, endpoints, rendezvous=rendezvous)
        self.on_loss(self.mailboxes.leave)
        return self.mailboxes

    def choices(self, *key: int) -> np.random.Generator:
        """A generator for the method's own choices, named by what they are for."""
        return np.random.default_rng((self.seed, 7, *key))

    @property
    def samples(self) -> float:
        """Samples of one step of all workers."""
        return float(sum(worker.workload.batch for worker in self.workers))

    def average(self) -> Vector:
        """The mean of the weights of all workers that are left."""
        left = [worker.weights for worker in self.workers if not worker.lost]
        left = left or [self.workers[0].weights]
        return np.asarray(sum(left[1:], left[0]) / len(left))
