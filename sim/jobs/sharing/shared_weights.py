"""Weights that many workers read and write, on servers or in memory: their version, and updates
that wait to be merged."""

from sim.jobs.sharing.learning.task import Vector
from sim.jobs.sharing.merging import Merging
from sim.jobs.sharing.update_record import UpdateRecord


class SharedWeights:
    """The weights with their version: the number of steps that they have made.

    An update that is s versions late is multiplied by (1 + s)^-decay (`Learning.decay`).
    """

    def __init__(
        self, start: Vector, merging: Merging, record: UpdateRecord, *, decay: float = 0.0
    ) -> None:
        self.weights, self.merging, self.record = start.copy(), merging, record
        self.decay, self.version = decay, 0
        self._waiting: list[tuple[Vector, int, float]] = []  # update, staleness, samples

    def merge(self, update: Vector, *, read: int, samples: float, at: Vector | None = None) -> None:
        """Merge an update from `samples` samples, computed on version `read`, whose weights are
        `at`."""
        staleness = self.version - read
        if self.merging.compensate is not None and at is not None:
            update = self.merging.compensate(update, self.weights - at)
        if self.decay and staleness:
            update = (1.0 + staleness) ** -self.decay * update
        self._waiting.append((update, staleness, samples))
        if len(self._waiting) >= self.merging.buffer:
            updates, late, counts = zip(*self._waiting, strict=True)
            self._waiting = []
            mean = sum(updates[1:], updates[0]) / len(updates)
            self.weights = self.merging.rule.step(self.weights, mean)
            self.count(late, sum(counts))

    def count(self, staleness: int | tuple[int, ...], samples: float) -> None:
        """Count a new version of the weights, made from updates `staleness` versions late."""
        self.version += 1
        self.record.update(staleness, samples, lambda: self.weights)
