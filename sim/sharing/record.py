"""What a run leaves behind: updates with their staleness, samples, the loss on the way."""

from collections import Counter
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from sim.engine.processes import World
from sim.sharing.learning.task import Task

_POINTS = 200  # of the loss curve, at least, in a run that is long enough

Vector = NDArray[np.float64]


class Record:
    """Counts updates; every so many of them it takes the loss of the weights it is shown.

    The longer the run, the fewer: when the curve is full, every second point goes.

    `forgives` tells servers to weigh an update by 1/(1 + staleness) (Zhang et al. 2016).
    """

    def __init__(self, world: World, task: Task, *, forgives: bool = False) -> None:
        self.world, self.task, self.forgives = world, task, forgives
        self.updates = 0
        self.samples = 0.0
        self.dropped = 0
        self.staleness: Counter[int] = Counter()
        self.curve: list[tuple[float, float, float]] = []
        self.last = 0.0
        self._every = 1

    def update(self, staleness: int, samples: float, weights: Callable[[], Vector]) -> None:
        """The weights have been updated, with something so many updates old."""
        self.updates += 1
        self.samples += samples
        self.staleness[staleness] += 1
        self.last = self.world.now
        if self.updates % self._every == 0:
            self.look(weights)

    def look(self, weights: Callable[[], Vector]) -> None:
        """Take the loss now."""
        shown = weights()
        if not shown.size:
            return
        self.curve.append((self.world.now, self.samples, self.task.loss(shown)))
        if len(self.curve) >= 2 * _POINTS:
            self.curve = self.curve[1::2]
            self._every *= 2
