"""A parameter server: shards on hosts, a queue of updates, weights with a version."""

from collections.abc import Iterator, Mapping

import numpy as np

from sim.config.dataclass import dataclass
from sim.engine.live_cluster import Endpoint, Event, LiveCluster, Process
from sim.jobs.sharing.learning.task import Vector
from sim.jobs.sharing.merging import Merging, SharedWeights
from sim.jobs.sharing.tables import Recovery
from sim.jobs.sharing.update_record import UpdateRecord
from sim.jobs.sharing.worker import Worker, activity
from sim.program.causes import PULL, PUSH, SERVER


@dataclass(frozen=True, slots=True, kw_only=True)
class Shards:
    """Each host's share of the weights (Li et al. 2014); the shares add up to 1.

    `rate` is the bytes of updates that a host merges per second: `server_memory` / `server_passes`.
    """

    shares: Mapping[Endpoint, float]
    rate: float

    def seconds(self, size: float) -> float:
        """Seconds until the host with the largest share has merged its part of `size` bytes."""
        return max(self.shares.values()) * size / self.rate


class Server(SharedWeights):
    """All shards together. A push to all shards is one transfer, so their queues are one queue.

    If servers only sum (BytePS), every worker spends the time of the optimizer itself. While a
    server is away, nothing is pushed or pulled. With replicas, another server has its shard as soon
    as the failure is detected. Without replicas, the shard goes back to its last checkpoint.
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

    @activity
    def push(self, worker: Worker) -> Process:
        """Send a worker's update to all shards, then wait until they have merged it."""
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
        """Seconds until no server is away; 0 or less when all are present."""
        return self._back - self.cluster.now

    def _replicated(self, size: float) -> Iterator[Event]:
        """Every host sends its part of an update on to the next hosts, which hold its replicas."""
        hosts = list(self.shards.shares)
        for place, host in enumerate(hosts):
            for behind in range(1, self.recovery.replicas + 1):
                replica = hosts[(place + behind) % len(hosts)]
                share = self.shards.shares[host]
                yield self.cluster.send(share * size, host, {replica: 1.0})

    def fail(self, shard: int, after: float | None) -> None:
        """Let a host fail now. A replica replaces it when the failure is detected; without
        replicas, the host restarts from its last checkpoint, `after` seconds later at the
        earliest."""
        away = self.recovery.detection
        if not self.recovery.replicas:
            away = max(after or 0.0, away) + self.recovery.restart
            version, kept = self._checkpoint
            ends = np.linspace(0, self.weights.size, len(self.shards.shares) + 1).astype(int)
            part = slice(ends[shard], ends[shard + 1])
            self.weights = np.array(self.weights)
            self.weights[part] = kept[part]
            self.record.lost += self.version - version
        self._back = max(self._back, self.cluster.now + away)

    def arrival(self, worker: Worker, size: float) -> Event:
        return self.cluster.send(size, worker.endpoint, self.shards.shares)

    def worked_in(self, size: float) -> Event:
        """An event that fires when the hosts have merged all earlier updates and these bytes."""
        self._free = max(self._free, self.cluster.now) + self.shards.seconds(size)
        return self.cluster.sleep(self._free - self.cluster.now)

    @activity
    def pull(self, worker: Worker) -> Process:
        """Bring the present weights to a worker, which goes on with them."""
        weights, version = yield from self.fetch(worker)
        if self.only_sums:
            yield from worker.optimizer_pass()
        worker.take(weights, version)

    @activity
    def fetch(self, worker: Worker) -> Process:
        """Send the present weights to a worker; return the weights and their version."""
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
