"""The record of a run: its updates with their staleness, its samples, and its loss curve."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import NamedTuple

import numpy as np

from sim.engine.events import then
from sim.engine.live_cluster import LiveCluster
from sim.jobs.sharing.learning.task import LearningTask, Vector, accuracy

_POINTS = 200  # a long run's loss curve has at least as many points, and fewer than twice as many
# With at most this number of weights, the weights of each point are kept and the losses are
# computed at the end (400 points of 8 B for each weight). With more weights, each loss is computed
# at once.
_LARGE = 100_000


class CurvePoint(NamedTuple):
    """The `loss` after `seconds` with `samples` samples, and the `bytes` that all links have
    carried by then; `accuracy` is the share of right answers where the task classifies."""

    seconds: float
    samples: float
    loss: float
    bytes: float
    accuracy: float | None = None


def held(curve: Sequence[CurvePoint], loss: float) -> CurvePoint | None:
    """The first point from which on the curve stays at or below `loss`; None if its end is above.

    >>> losses = [CurvePoint(float(t), t, loss, 0.0) for t, loss in enumerate((3, 1, 4, 1, 1))]
    >>> held(losses, 2.0).seconds, held(losses, 0.5)
    (3.0, None)
    """
    there = None
    for point in reversed(curve):
        if not point.loss <= loss:
            break
        there = point
    return there


def setback(curve: Sequence[CurvePoint]) -> float:
    """The largest rise of a loss above its lowest earlier value, as a share of its whole fall.

    >>> round(setback([CurvePoint(0.0, 0, loss, 0.0) for loss in (3, 1, 2, 0.5)]), 2)
    0.4
    """
    losses = np.nan_to_num([point.loss for point in curve], nan=inf, posinf=inf)
    if not losses.size or not (fall := losses[0] - losses.min()) > 0.0:
        return 0.0
    return float((losses - np.minimum.accumulate(losses)).max() / fall)


class UpdateRecord:
    """Counts updates until there are `budget` samples, and records the loss on the way.

    Longer runs space their points wider: when the curve is full, every second point is dropped,
    mostly before its loss is computed.
    """

    def __init__(self, cluster: LiveCluster, task: LearningTask, *, budget: float = inf) -> None:
        self.cluster, self.task = cluster, task
        self.budget, self.enough = budget, cluster.event()
        self.updates = 0
        self.samples = 0.0
        self.dropped = 0
        self.lost = 0  # updates that were applied, but lost with a server
        self.staleness: Counter[int] = Counter()
        self._points: list[CurvePoint | Callable[[], CurvePoint]] = []
        self.last = 0.0
        self._every = 1

    def update(
        self,
        staleness: int | tuple[int, ...],
        samples: float,
        weights: Callable[[], Vector],
        *,
        settled: bool = False,
    ) -> None:
        """Count an update of the weights that is `staleness` updates late; a tuple has the lateness
        of several merged updates. If the curve takes this point, `weights()` is called at once, or
        with `settled` after all other events of this moment. A worker that counts an update for
        several workers needs `settled`, because the others apply the update later."""
        self.updates += 1
        self.samples += samples
        self.staleness.update((staleness,) if isinstance(staleness, int) else staleness)
        self.last = self.cluster.now
        if self.updates % self._every == 0:
            take = partial(self._take_loss, self.samples, weights)
            if settled:
                then(moment := self.cluster.event(), lambda _: take())
                self.cluster.fire_last(moment)
            else:
                take()
        if self.samples >= self.budget and not self.enough.triggered:
            self.cluster.fire_last(self.enough)

    @property
    def curve(self) -> list[CurvePoint]:
        """The points of the loss curve; losses that are still missing are computed now."""
        points = [point if isinstance(point, CurvePoint) else point() for point in self._points]
        self._points = [*points]
        return points

    def _take_loss(self, samples: float, read: Callable[[], Vector]) -> None:
        weights = read()
        if not weights.size:
            return
        moment = (self.cluster.now, samples, self.cluster.bytes)
        point = partial(self._point, *moment, np.asarray(weights))
        self._points.append(point() if weights.size > _LARGE else point)
        if len(self._points) >= 2 * _POINTS:
            self._points = self._points[1::2]
            self._every *= 2

    def _point(self, seconds: float, samples: float, sent: float, weights: Vector) -> CurvePoint:
        loss, right = self.task.loss(weights), accuracy(self.task, weights)
        return CurvePoint(seconds, samples, loss, sent, right)
