"""How do weights get to the servers, and the trainer's tensors to the host and back?

All transfers are flows on the links of the cluster; each way of `WeightTransfer` is a method that
says which bytes cross which links.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby

from sim.config.dataclass import dataclass
from sim.engine.live_cluster import Endpoint, Event, LiveCluster, Process
from sim.hardware.cluster.topology import Topology
from sim.jobs.reinforcement.scenario import WeightTransfer
from sim.parallel.job import Job

# Bytes/s at which a process allocates pinned memory: pytorch, pull request 197868, 12 x 64 MiB in
# 494.80 ms (EPYC 7H12).
PINNED = 12 * 64 * 2.0**20 / 494.80e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """The senders and receivers of weights: the GPUs of the trainer and of each server. The
    trainer's GPUs form `copies` groups; each group holds all weights once."""

    trainer: tuple[int, ...]
    copies: int
    servers: tuple[tuple[int, ...], ...]

    def holders(self, server: int) -> tuple[int, ...]:
        """The trainer's GPUs that send to a server; the groups serve the servers in turn."""
        size = len(self.trainer) // self.copies
        first = server % self.copies * size
        return self.trainer[first : first + size]


def copies(job: Job) -> int:
    """The number of groups of the trainer's ranks that each hold all weights between steps. It is
    the number of ranks divided by the largest degree by which tensor parallelism, expert
    parallelism or ZeRO-3 divides weights."""
    plan = job.plan
    ranks = plan.degree(("tp", "cp", "dp", "dp_replicate"))
    divided = max(plan.tp, plan.ep * plan.etp)
    divided = max(divided, plan.degree(("tp", "dp"))) if plan.zero == 3 else divided
    return max(1, ranks // divided)


def stored(topology: Topology, way: str, gpus: Iterable[int]) -> float:
    """The rate (B/s) at which the nodes of some GPUs together write to the cluster's storage ("up")
    or read from it ("down"). It is the rate of their stores or of the links to the stores,
    whichever is lower."""
    nodes, storage = {topology.node_of(gpu) for gpu in gpus}, topology.storage
    assert storage is not None, "checked with the scenario"
    stores = {storage.place_of(node) for node in nodes}
    rate = sum(topology.capacity((f"storage-{way}", store)) for store in stores)
    if storage.bandwidth:
        return min(rate, sum(topology.capacity((f"client-{way}", node)) for node in nodes))
    network = topology.network
    links = ((f"nic-{way}", n, nic) for n in nodes for nic in range(network.nics if network else 0))
    return min(rate, sum(map(topology.capacity, links)) or rate)


def endpoints(gpus: Iterable[int], cluster: LiveCluster) -> list[Endpoint]:
    """GPUs as endpoints, one for each node."""
    nodes = groupby(sorted(gpus), key=cluster.topology.node_of)
    return [Endpoint(tuple(group)) for _, group in nodes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """The weights of a model, `size` bytes in `tensors` tensors, from a trainer to its servers."""

    cluster: LiveCluster
    table: WeightTransfer
    sides: Sides
    size: float
    tensors: int

    def run(self) -> Process:
        """Send the weights; the process ends when all servers have them."""
        yield from _WAYS[self.table.way](self)
        if self.table.tensor:
            yield self.cluster.sleep(self.table.tensor * self.tensors)

    def _gathered(self) -> Process:
        """Gather all weights on every rank of a group (an all-gather within the group)."""
        if len(group := self.sides.holders(0)) > 1:
            parts = endpoints(group, self.cluster)
            yield self.cluster.collective("all_gather", self.size, parts)

    def broadcast(self) -> Process:
        """Gather the weights on every rank of the trainer. Then one rank sends them to all GPUs of
        servers that are not the trainer's. Each GPU receives all tensors and keeps its part."""
        yield from self._gathered()
        yield from self._spread()

    def buckets(self) -> Process:
        """Broadcast by way of pinned memory of the hosts, in which each rank of the trainer puts a
        share of the tensors."""
        yield from self._gathered()
        trainer = self.sides.trainer
        each = self.size / len(trainer)
        yield from parked(self.cluster, trainer, each)
        yield from moved(self.cluster, trainer, each, "up")
        yield from self._spread()

    def _spread(self) -> Process:
        """Send all tensors from a rank of the trainer to each server GPU that is not the
        trainer's."""
        trainer = frozenset(self.sides.trainer)
        others = [gpu for server in self.sides.servers for gpu in server if gpu not in trainer]
        if not others:
            return
        sender, *_ = endpoints(self.sides.trainer[:1], self.cluster)
        first, *_ = endpoints(others[:1], self.cluster)
        sent = [self.cluster.send(self.size, sender, {first: 1.0})]
        if len(others) > 1:
            parts = endpoints(others, self.cluster)
            sent.append(self.cluster.collective("broadcast", self.size, parts))
        yield self.cluster.all_of(sent)

    def sharded(self) -> Process:
        """Send weights to each server from a group of the trainer; each rank sends its shard."""
        servers = enumerate(self.sides.servers)
        sent = [self._gather(self.sides.holders(number), gpus) for number, gpus in servers]
        yield self.cluster.all_of(sent)

    def _gather(self, sources: Sequence[int], gpus: Sequence[int]) -> Event:
        """Send all weights from some GPUs to a server; each GPU of the server receives its part."""
        share = 1.0 / len(gpus)
        parts = endpoints(sources, self.cluster)
        shares = {part: share * len(part.gpus) / len(sources) for part in parts}
        targets = [Endpoint((gpu,)) for gpu in gpus]
        return self.cluster.all_of(
            [self.cluster.gather(self.size, shares, target) for target in targets]
        )

    def host(self) -> Process:
        """Send weights by way of the hosts' memory: down from the trainer, over the network, and up
        to the servers."""
        senders, servers = self.sides.holders(0), self.sides.servers
        receivers = [gpu for server in servers for gpu in server]
        yield from moved(self.cluster, senders, self.size / len(senders), "down")
        yield from self.sharded()
        each = len(servers) * self.size / len(receivers)
        yield from moved(self.cluster, receivers, each, "up")

    def storage(self) -> Process:
        """Write the weights to storage once, then let every server read them once."""
        servers, topology = self.sides.servers, self.cluster.topology
        readers = [gpu for server in servers for gpu in server]
        write, read = (
            self.table.storage or stored(topology, way, gpus)
            for way, gpus in (("up", self.sides.holders(0)), ("down", readers))
        )
        yield self.cluster.sleep(self.size / write + len(servers) * self.size / read)


_WAYS: Mapping[str, Callable[[Transfer], Process]] = {
    "broadcast": Transfer.broadcast,
    "buckets": Transfer.buckets,
    "sharded": Transfer.sharded,
    "host": Transfer.host,
    "storage": Transfer.storage,
}


def moved(cluster: LiveCluster, gpus: Sequence[int], each: float, way: str) -> Process:
    """Move `each` bytes of every GPU "down" to its host, or "up" from it."""
    if each:
        parts = endpoints(gpus, cluster)
        yield cluster.all_of(
            [cluster.host_copy(each * len(part.gpus), part, way) for part in parts]
        )


def parked(cluster: LiveCluster, gpus: Sequence[int], each: float) -> Process:
    """Move `each` bytes of every GPU to newly pinned memory of its host."""
    if each:
        yield from moved(cluster, gpus, each, "down")
        yield cluster.sleep(each / PINNED)
