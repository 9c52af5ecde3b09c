"""Weights that many workers read and write, on servers or in memory, and how updates are merged
into them: buffers, compensation, rules."""

from collections.abc import Callable
from dataclasses import field
from typing import Protocol

import numpy as np

from sim.config.dataclass import dataclass
from sim.jobs.sharing.learning.task import Vector
from sim.jobs.sharing.update_record import UpdateRecord

Compensation = Callable[[Vector, Vector], Vector]
"""Estimates the gradient at the present weights, from a gradient and the change of the weights
since the gradient was computed."""


class Rule(Protocol):
    """A step of the weights with an update: a gradient, or the change of a worker's weights."""

    def step(self, weights: Vector, update: Vector) -> Vector: ...


class DelayedNesterov:
    """Momentum that moves the weights only at every N-th update d (Liu et al. 2024, with c = 0).

    At all other updates, w <- w - rate d / N. At every N-th update, m <- beta m + (sum of the last
    N updates) / N and w <- w - rate (beta m + d / N). w are the weights, m is the momentum.
    """

    def __init__(self, rate: float, beta: float, delay: int, size: int) -> None:
        self.rate, self.beta, self.delay = rate, beta, delay
        self.moment: Vector = np.zeros(size)
        self.sum: Vector = np.zeros(size)
        self.updates = 0

    def step(self, weights: Vector, update: Vector) -> Vector:
        self.updates += 1
        self.sum = self.sum + update
        direction = update / self.delay
        if self.updates % self.delay == 0:
            self.moment = self.beta * self.moment + self.sum / self.delay
            self.sum = np.zeros(self.sum.size)
            direction = self.beta * self.moment + direction
        return weights - self.rate * direction


@dataclass(slots=True)
class DelayCompensated:
    """g + lambda g * g * (w - w_read), for a gradient g that was computed on the weights w_read and
    changes the weights w. The square of the gradient stands for the diagonal of the Hessian
    (DC-ASGD, Zheng et al. 2017, arXiv 1609.08326).

    `adaptive` divides lambda by the root of a running mean of g * g (DC-ASGD-a). The mean plus 1e-7
    is taken as in the authors' Multiverso (updater/dcasgd/dcasgda_updater.h, which has such a mean
    for each worker). The mean's decay of 0.95 and lambda = 2 are the values of scorch.optim's
    DCASGDa. A known `curvature` replaces the squares: on a quadratic the result is then the exact
    gradient at the present weights.

    >>> gradient, gone = np.array([2.0]), np.array([0.5])
    >>> DelayCompensated(strength=1.0)(gradient, gone)
    array([4.])
    """

    strength: float
    adaptive: bool = False
    curvature: Callable[[Vector], Vector] = np.square
    _mean_square: Vector = field(default_factory=lambda: np.zeros(1))

    def __call__(self, gradient: Vector, gone: Vector) -> Vector:
        strength: Vector | float = self.strength
        if self.adaptive:
            self._mean_square = 0.95 * self._mean_square + 0.05 * gradient**2
            strength = self.strength / np.sqrt(self._mean_square + 1e-7)
        compensated: Vector = gradient + strength * self.curvature(gradient) * gone
        return compensated


@dataclass(frozen=True, slots=True, kw_only=True)
class Merging:
    """A `rule` that steps the weights with the mean of every `buffer` updates (FedBuff, Nguyen et
    al. 2022); a buffer of 1 applies each update at once. `compensate` corrects each update for the
    change of the weights since the worker read them."""

    rule: Rule
    buffer: int = 1
    compensate: Compensation | None = None


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
        """Merge an update that was computed from `samples` samples. The worker had read version
        `read` of the weights; `at` are these weights."""
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
