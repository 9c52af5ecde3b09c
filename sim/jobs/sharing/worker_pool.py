"""Workers that train together: the input of every method of sharing updates.

`Clocks` count the steps of every worker, for stale synchronous training (Ho et al. 2013).
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from math import inf
from time import monotonic

import numpy as np

from sim.config import limit
from sim.config.errors import InputError
from sim.engine.live_cluster import Event, LiveCluster, Process
from sim.jobs.sharing.barrier import Action, Barrier
from sim.jobs.sharing.learning.task import LearningTask, Vector
from sim.jobs.sharing.mailboxes import Mailboxes
from sim.jobs.sharing.merging import SharedWeights
from sim.jobs.sharing.server import Server
from sim.jobs.sharing.tables import Recovery
from sim.jobs.sharing.update_record import UpdateRecord
from sim.jobs.sharing.worker import Worker, WorkerLost

_LOOK = 10_000  # events between two checks of whether a run is endless
# A run is endless if it computes this many times its samples, or the samples of a round, without an
# update. Shared weights may wait for many gradients before a step: their limit is 10 times as high.
_PATIENCE = 10


class Clocks:
    """Counts the steps that each worker has done; workers wait here for the slowest worker."""

    def __init__(self, cluster: LiveCluster, members: Iterable[int]) -> None:
        self.cluster = cluster
        self._steps = dict.fromkeys(members, 0)
        self._workers_at = Counter(self._steps.values())
        self.slowest = 0
        self._waiting: dict[int, Event] = {}

    def tick(self, rank: int) -> None:
        """Count a further step of a worker."""
        self._workers_at[self._steps[rank]] -= 1
        self._steps[rank] += 1
        self._workers_at[self._steps[rank]] += 1
        self._advance()

    def leave(self, rank: int) -> None:
        self._workers_at[self._steps.pop(rank)] -= 1
        self._advance()

    def reach(self, steps: int) -> Event:
        """An event that fires when even the slowest worker has done `steps` steps."""
        if self.slowest >= steps:
            event = self.cluster.event()
            event.succeed()
            return event
        return self._waiting.setdefault(steps, self.cluster.event())

    def _advance(self) -> None:
        while self._steps and not self._workers_at[self.slowest]:
            self.slowest += 1
        for steps in [steps for steps in self._waiting if steps <= self.slowest]:
            self._waiting.pop(steps).succeed()


TrainingLoop = Callable[[Worker], Process]


@dataclass(slots=True)
class WorkerPool:
    """The workers, the cluster they run on, and their shared state.

    The workers train until the `record` has its budget of samples, or until the time limit `until`.
    No worker has a fixed share of the work, so none is done before the others. `seed` seeds the
    method's own choices (partners, participants), independently of data and stragglers. `shared`
    are the weights that all workers update, on `servers` or in a host's memory.
    """

    cluster: LiveCluster
    workers: list[Worker]
    task: LearningTask
    record: UpdateRecord
    until: float | None
    seed: int
    shared: SharedWeights | None = None
    servers: Server | None = None
    mailboxes: Mailboxes | None = None
    version: int = 0
    round_steps: int = 1  # steps of a worker before its first update
    recovery: Recovery = field(default_factory=Recovery)
    _on_loss: list[tuple[Callable[[int], None], float]] = field(default_factory=list)
    _groups: list[frozenset[int]] = field(default_factory=list)  # the members of every barrier

    def train(self, loop: TrainingLoop) -> None:
        """Let every worker run the loop until the run is over or the worker fails for good."""
        for worker in self.workers:
            self.cluster.start(self._training(worker, loop))

    def _training(self, worker: Worker, loop: TrainingLoop) -> Process:
        try:
            yield from loop(worker)
        except WorkerLost:
            self.lose(worker)

    def lose(self, worker: Worker) -> None:
        """Let a worker fail for good; the other workers go on without it."""
        if not worker.lost:
            worker.fail()
            for leave, known in self._on_loss:
                if known:
                    self.cluster.call_at(self.cluster.now + known, partial(leave, worker.rank))
                else:
                    leave(worker.rank)

    def run(self) -> None:
        """Run until there are enough samples, no worker is left, or the time is over."""
        over = self.record.enough if self.until is None else self.cluster.sleep(self.until)
        began = monotonic()
        while not self._advance(over):
            self._refuse_endless(monotonic() - began)
        if self.end <= 0.0:
            fault = "no update was recorded: workers wait for messages that nobody sends"
            raise InputError("sharing", fault, "check what the method sends and what it awaits")
        if self.record.updates and not any(worker.steps for worker in self.workers):
            fault = "updates were recorded, but no worker has computed a step"
            raise InputError("sharing", fault, "write `yield from` before a worker's activities")

    def _advance(self, over: Event) -> bool:
        """Let the next events happen. Raises `InputError` if a worker yields something that is no
        event, such as a call without `yield from`."""
        try:
            return self.cluster.run(over, _LOOK)
        except RuntimeError as error:
            if not (
                found := re.search(
                    r'Invalid yield value "<?(?:generator object )?(\S+)', f"{error}"
                )
            ):
                raise
            fault = f"a worker yields {found[1]}, which is no event"
            raise InputError(
                "sharing", fault, "write `yield from` before a part of its process"
            ) from error

    def _refuse_endless(self, taken: float) -> None:
        """Raise `InputError` if workers compute without end and record no update."""
        if self.until is not None or self.record.updates:
            return
        steps = sum(worker.steps for worker in self.workers)
        patience = _PATIENCE if self.shared is None and self.round_steps > 1 else 10 * _PATIENCE
        expected = max(self.record.budget, self.round_steps * self.samples)
        enough = steps * self.samples / len(self.workers) > patience * expected
        if enough or taken > limit.allowed():
            fault = f"no update was recorded in {steps:,} steps of the workers"
            raise InputError("sharing", fault, "call pool.record.update where weights change")

    @property
    def end(self) -> float:
        """When the run was over (s): at its time limit, its last update, or when its last worker
        failed."""
        if self.until is not None:
            return self.until
        if self.record.enough.triggered:
            return self.record.last
        return max(self.record.last, *(worker.ended for worker in self.workers))

    def restore(self, worker: Worker) -> Process:
        """Let a worker that is back fetch the present weights, from servers or from a peer."""
        cluster, size = self.cluster, worker.workload.bytes
        peer, held = self._peer_of(worker), self.shared
        if self.servers is not None:
            yield cluster.gather(size, self.servers.shards.shares, worker.endpoint)
        elif peer is not None:
            yield cluster.send(size, peer.endpoint, {worker.endpoint: 1.0})
        if held is not None:
            worker.take(held.weights, held.version)
        elif peer is not None:
            worker.take(peer.weights, worker.version)

    def _peer_of(self, worker: Worker) -> Worker | None:
        """The present worker with which a worker shares the smallest barrier; among equals, the
        next by rank."""

        def distance(other: Worker) -> tuple[float, int]:
            shared = (len(group) for group in self._groups if {worker.rank, other.rank} <= group)
            return min(shared, default=inf), (other.rank - worker.rank) % len(self.workers)

        present = (other for other in self.workers if not (other is worker or other.is_away))
        return min(present, key=distance, default=None)

    # State that workers share.

    def on_loss(self, leave: Callable[[int], None], known: float | None = None) -> None:
        """Call `leave` with the rank of every worker that fails for good, `known` seconds after its
        failure; by default when the failure is detected."""
        self._on_loss.append((leave, self.recovery.detection if known is None else known))

    @property
    def server(self) -> Server:
        assert self.servers is not None, "this method needs servers"
        return self.servers

    def barrier(
        self, act: Action, known: float | None = None, members: Iterable[int] | None = None
    ) -> Barrier:
        """A barrier for all workers, or for `members`; a lost worker leaves it after `known` s."""
        members = range(len(self.workers)) if members is None else members
        barrier = Barrier(self.cluster, members, act)
        self._groups.append(frozenset(barrier.members))
        self.on_loss(barrier.leave, known)
        return barrier

    def collectives(self, act: Action, members: Iterable[int] | None = None) -> Barrier:
        """A barrier for collectives, which the host launches one after the other. A group that has
        lost a member first detects the failure and forms again."""
        barrier = self.barrier(act, self.recovery.detection + self.recovery.restart, members)
        barrier.launch = self.workers[0].workload.call
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
        """A random generator for the method's own choices; `key` distinguishes their purposes."""
        return np.random.default_rng((self.seed, 7, *key))

    @property
    def samples(self) -> float:
        """Samples of one step of all workers."""
        return float(sum(worker.workload.batch for worker in self.workers))

    def average(self) -> Vector:
        """The mean of the weights of all workers that have not failed for good."""
        left = [worker.weights for worker in self.workers if not worker.lost]
        left = left or [self.workers[0].weights]
        return sum(left[1:], left[0]) / len(left)
