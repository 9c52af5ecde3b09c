"""A layer on its way to the servers and back, beside the passes."""

from math import inf

from sim.engine.events import then
from sim.engine.live_cluster import Event, Process
from sim.jobs.sharing.barrier import Barrier, Exchange
from sim.jobs.sharing.learning.task import Vector
from sim.jobs.sharing.worker import Worker
from sim.jobs.sharing.worker_pool import WorkerPool
from sim.jobs.sharing.workload import TimedLayer
from sim.program.causes import DATA


class LayerExchange(Exchange):
    """Sends a layer's gradient to the servers and fetches its new weights, beside the passes.

    Each GPU of a node reduces, sends and receives a part of the layer, then gathers other parts.
    """

    def __init__(self, pool: WorkerPool, worker: Worker, layer: TimedLayer) -> None:
        super().__init__(pool.cluster.env)
        self.cluster, self.server = pool.cluster, pool.server
        self.worker, self.layer = worker, layer
        self.size = layer.parameters * worker.workload.width
        self.complete = -inf  # a layer that is only pulled waits for no worker

    def begin(self, process: Process) -> None:
        """Run the process beside everything else; this event fires at its end."""
        then(self.cluster.start(process), self._over)

    def _over(self, _: Event) -> None:
        self.succeed()

    def pull(self) -> Process:
        """Bring the layer's weights to all GPUs of the worker."""
        shares = self.server.shards.shares
        yield self.cluster.gather(self.size, shares, self.worker.endpoint)
        yield self._inside("all_gather")

    def push_and_pull(self, barrier: Barrier, key: tuple[int, int], gradient: Vector) -> Process:
        """Send the gradient to the servers and bring the new weights back."""
        worker, began = self.worker, self.cluster.now
        yield self._inside("reduce_scatter")
        if (away := self.server.away) > 0.0:
            yield self.cluster.sleep(away)
        yield self.server.arrival(worker, worker.message_of(self.layer))
        yield self.server.worked_in(self.size)
        self.reached, self.complete = self.cluster.now, inf
        weights = yield barrier.join(worker.rank, key, gradient)
        self.complete = self.cluster.now
        yield from self.pull()
        worker.note(f"push and pull {key[1]}", DATA, began)
        if key[1] == 0:
            worker.weights, worker.version = weights, self.server.version

    def _inside(self, kind: str) -> Event:
        return self.cluster.collective(kind, self.size, [self.worker.endpoint])
