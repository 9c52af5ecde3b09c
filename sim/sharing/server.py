"""A parameter server: shards on hosts, a queue of updates, weights with a version."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sim.engine.processes import Event, Place, Process, World
from sim.sharing.learning.optimizers import Optimizer

if TYPE_CHECKING:
    from sim.sharing.record import Record
    from sim.sharing.worker import Worker

Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shards:
    """Where the weights lie (Li et al. 2014): per host its share of them, adding up to 1.

    `rate` is what a host takes in (bytes of updates a second): memory bandwidth / passes.
    """

    places: Mapping[Place, float]
    rate: float

    def seconds(self, size: float) -> float:
        """Until the host with the largest share has worked `size` bytes of update in."""
        return max(self.places.values()) * size / self.rate


class Server:
    """All shards together: a push to them is one transfer, so their queues are one queue.

    Servers that only sum (BytePS) leave the time of the optimizer to every worker.
    """

    def __init__(
        self,
        world: World,
        shards: Shards,
        weights: Vector,
        rule: Optimizer,
        record: "Record",
        *,
        sums: bool = False,
    ) -> None:
        self.sums = sums
        self.world, self.shards, self.record = world, shards, record
        self.weights, self.rule = weights.copy(), rule
        self.state = rule.start(weights.size)
        self.version = 0
        self.busy = 0.0
        self._free = 0.0

    def push(self, me: "Worker", size: float, share: float = 1.0) -> Process:
        """Bytes from a worker to all shards, then its turn in their queue and the update's time."""
        yield from me.wait(self.arrival(me, size), "communication", "push")
        yield from me.wait(self.turn(share * me.work.bytes), "server")

    def arrival(self, me: "Worker", size: float) -> Event:
        return self.world.send(size, me.place, self.shards.places)

    def turn(self, size: float) -> Event:
        """Fires when the hosts have worked in what came before, and then these bytes."""
        seconds = self.shards.seconds(size)
        self._free = max(self._free, self.world.now) + seconds
        self.busy += seconds
        return self.world.sleep(self._free - self.world.now)

    def pull(self, me: "Worker", share: float = 1.0) -> Process:
        """The weights as they are now, on their way to a worker."""
        weights, version = self.weights, self.version
        arrival = self.world.gather(share * me.work.bytes, self.shards.places, me.place)
        yield from me.wait(arrival, "communication", "pull")
        if self.sums:
            yield from me.optimizer_pass()
        me.weights, me.version = weights, version

    def apply(self, gradient: Vector, read: int, samples: float, *, scale: float = 1.0) -> None:
        """One update from a gradient that was computed on version `read`."""
        staleness = self.version - read
        if self.record.forgives and staleness:
            scale /= 1.0 + staleness
        gradient = gradient if scale == 1.0 else scale * gradient
        self.weights, self.state = self.rule.step(self.weights, gradient, self.state)
        self.version += 1
        self.record.update(staleness, samples, self._loss)

    def _loss(self) -> Vector:
        return np.asarray(self.weights)
