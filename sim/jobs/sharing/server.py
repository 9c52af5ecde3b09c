"""A parameter server: shards on hosts, a queue of updates, weights with a version."""

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from sim.config.dataclass import dataclass
from sim.engine.live_cluster import Endpoint, Event, LiveCluster, Process
from sim.jobs.sharing.merging import Merging
from sim.jobs.sharing.shared_weights import SharedWeights
from sim.jobs.sharing.tables import Recovery
from sim.jobs.sharing.update_record import UpdateRecord
from sim.jobs.sharing.worker import Worker
from sim.program.causes import PULL, PUSH, SERVER

Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shards:
    """The shares of the weights on each host (Li et al. 2014), adding up to 1.

    `rate` is what a host takes in (bytes of updates a second): memory bandwidth / passes.
    """

    shares: Mapping[Endpoint, float]
    rate: float

    def seconds(self, size: float) -> float:
        """Seconds until the host with the largest share has merged `size` bytes of update."""
        return max(self.shares.values()) * size / self.rate


class Server(SharedWeights):
    """All shards together: a push to them is one transfer, so their queues are one queue.

    Servers that only sum (BytePS) leave the time of the optimizer to every worker. While one is
    away, nothing is pushed or pulled; with replicas another has its shard as soon as the failure is
    detected, otherwise the shard goes back to its last checkpoint.
    """

    def __init__(
        self,
        cluster: LiveCluster,
        shards: Shards,
        start: Vector,
        merging: Merging,
        record: UpdateRecord,
        recovery: Recovery,
        *,
        decay: float = 0.0,
        only_sums: bool = False,
    ) -> None:
        super().__init__(start, merging, record, decay=decay)
        self.only_sums, self.cluster, self.shards = only_sums, cluster, shards
        self.recovery, self._back = recovery, 0.0
        self._checkpoint = (0, self.weights)
        self._free = 0.0

    def push(self, worker: Worker) -> Process:
        """An update from a worker to all shards, then its turn in their queue."""
        if self.away > 0.0:
            yield from self._available(worker)
        yield from worker.wait(self.arrival(worker, worker.message), PUSH, "push")
        yield from worker.wait(self.worked_in(worker.workload.bytes), SERVER)
        if self.recovery.replicas:
            yield from worker.wait(self.cluster.all_of(self._replicated(worker.message)), SERVER)

    def _available(self, worker: Worker) -> Process:
        """Wait for a server that is away."""
        while self.away > 0.0:
            yield from worker.wait(self.cluster.sleep(self.away), SERVER)

    @property
    def away(self) -> float:
        """Seconds until all servers are there."""
        return self._back - self.cluster.now

    def _replicated(self, size: float) -> Iterator[Event]:
        """Every host hands its part of an update on to the next ones."""
        hosts = list(self.shards.shares)
        for place, host in enumerate(hosts):
            for behind in range(1, self.recovery.replicas + 1):
                replica = hosts[(place + behind) % len(hosts)]
                share = self.shards.shares[host]
                yield self.cluster.send(share * size, host, {replica: 1.0})

    def fail(self, shard: int, after: float | None) -> None:
        """A host fails now, and is back `after` a time where no replica stands in for it."""
        away = self.recovery.detection
        if not self.recovery.replicas:
            away = max(after or 0.0, away) + self.recovery.restart
            version, kept = self._checkpoint
            ends = np.linspace(0, self.weights.size, len(self.shards.shares) + 1).astype(int)
            own = slice(ends[shard], ends[shard + 1])
            self.weights = np.array(self.weights)
            self.weights[own] = kept[own]
            self.record.lost += self.version - version
        self._back = max(self._back, self.cluster.now + away)

    def arrival(self, worker: Worker, size: float) -> Event:
        return self.cluster.send(size, worker.endpoint, self.shards.shares)

    def worked_in(self, size: float) -> Event:
        """Fires when the hosts have worked in what came before, and then these bytes."""
        self._free = max(self._free, self.cluster.now) + self.shards.seconds(size)
        return self.cluster.sleep(self._free - self.cluster.now)

    def pull(self, worker: Worker) -> Process:
        """The weights as they are now become a worker's."""
        weights, version = yield from self.fetch(worker)
        if self.only_sums:
            yield from worker.optimizer_pass()
        worker.weights, worker.version = weights, version

    def fetch(self, worker: Worker) -> Process:
        """The weights as they are now, on their way to a worker; returns them and their version."""
        if self.away > 0.0:
            yield from self._available(worker)
        weights, version = self.weights, self.version
        arrival = self.cluster.gather(worker.workload.bytes, self.shards.shares, worker.endpoint)
        yield from worker.wait(arrival, PULL, "pull")
        return weights, version

    def count(self, staleness: int | tuple[int, ...], samples: float) -> None:
        super().count(staleness, samples)
        if self.version % self.recovery.checkpoint == 0:
            self._checkpoint = (self.version, self.weights)
