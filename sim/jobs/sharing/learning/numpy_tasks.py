"""Tasks that numpy alone computes: a noisy quadratic, logistic regression and a perceptron.

The quadratic has a known optimum. The classifiers learn data that this project makes itself: two
Gaussian clouds (logistic regression) or points on two interleaved spirals (multilayer perceptron),
drawn once from the seed. A worker draws its batches from all points. If `unlike` is set, the worker
draws mostly from its own part of the points, which are sorted by label.
"""

from abc import ABC, abstractmethod
from dataclasses import field

import numpy as np

from sim.config.dataclass import dataclass
from sim.jobs.sharing.learning.task import Rows, Vector, batch_generator, drawn_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Quadratic:
    """f(w) = 1/2 sum_i a_i (w_i - 1)^2, with a_i from 1/`condition` to 1; the optimum is w = 1.

    The gradient of worker r is a (w - 1 - `unlike` d_r) + `noise` N(0, 1) / sqrt(batch). The
    worker's own offset d_r is drawn once from N(0, 1). Offsets are centred over all `workers`, so
    unequal data do not move the optimum of the mean.

    >>> task = Quadratic(size=3, noise=0.0)
    >>> task.loss(np.ones(3)), task.gradient(np.ones(3), rank=0, step=0)
    (0.0, array([0., 0., 0.]))
    """

    size: int = 10
    condition: float = 10.0
    noise: float = 0.1
    unlike: float = 0.0
    batch: int = 1
    workers: int = 1
    seed: int = 0
    name: str = "quadratic"
    _curvature: Vector = field(init=False, repr=False)
    _offsets: Vector = field(init=False, repr=False)

    def __post_init__(self) -> None:
        draws = np.random.default_rng((self.seed, 1)).standard_normal((self.workers, self.size))
        curvature = np.geomspace(1.0 / self.condition, 1.0, self.size)
        object.__setattr__(self, "_curvature", curvature)
        object.__setattr__(self, "_offsets", self.unlike * (draws - draws.mean(axis=0)))

    @property
    def start(self) -> Vector:
        return np.zeros(self.size)

    def gradient(self, weights: Vector, rank: int, step: int) -> Vector:
        exact: Vector = self._curvature * (weights - 1.0 - self._offsets[rank % self.workers])
        if not self.noise:
            return exact
        drawn = batch_generator(self.seed, rank, step).standard_normal(self.size)
        return np.asarray(exact + self.noise / np.sqrt(self.batch) * drawn)

    def loss(self, weights: Vector) -> float:
        return float(0.5 * np.sum(self._curvature * (weights - 1.0) ** 2))


def clouds(count: int, size: int, generator: np.random.Generator) -> tuple[Vector, Vector]:
    """Two unit Gaussian clouds whose centres lie 2 apart."""
    labels = (np.arange(count) % 2).astype(float)
    centre = np.ones(size) / np.sqrt(size)
    points = generator.standard_normal((count, size)) + np.outer(2.0 * labels - 1.0, centre)
    return points, labels


def spirals(count: int, generator: np.random.Generator) -> tuple[Vector, Vector]:
    """Two arms of a spiral, each three quarters of a turn, with a little noise."""
    labels = (np.arange(count) % 2).astype(float)
    along = generator.random(count)
    angle = 1.5 * np.pi * along + np.pi * labels
    points = np.stack([along * np.cos(angle), along * np.sin(angle)], axis=1) * 2.0
    return points + 0.05 * generator.standard_normal(points.shape), labels


@dataclass(frozen=True, slots=True, kw_only=True)
class Classifier(ABC):
    """Learns a score whose sign gives a point's label (0 or 1), by mean cross-entropy."""

    samples: int = 2000
    batch: int = 32
    unlike: float = 0.0
    workers: int = 1
    seed: int = 0
    _points: Vector = field(init=False, repr=False)
    _labels: Vector = field(init=False, repr=False)
    _order: Rows = field(init=False, repr=False)

    def __post_init__(self) -> None:
        points, labels = self._made()
        object.__setattr__(self, "_points", points)
        object.__setattr__(self, "_labels", labels)
        object.__setattr__(self, "_order", np.argsort(labels, kind="stable"))

    @abstractmethod
    def _made(self) -> tuple[Vector, Vector]:
        """The points and their labels."""

    @abstractmethod
    def _score(self, weights: Vector) -> Vector:
        """The scores of all points."""

    def _batch(self, rank: int, step: int) -> tuple[Vector, Vector]:
        """A worker's batch. If data are unlike, the worker's own part is a piece of the sorted
        data."""
        chosen = drawn_rows(self._order, self, rank, step, self.batch)
        return self._points[chosen], self._labels[chosen]

    def loss(self, weights: Vector) -> float:
        score = self._score(weights)
        return float(np.mean(np.logaddexp(0.0, score) - self._labels * score))

    def accuracy(self, weights: Vector) -> float:
        return float(np.mean((self._score(weights) > 0.0) == (self._labels > 0.5)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Logistic(Classifier):
    """Logistic regression with an L2 penalty of `decay`/2 |w|^2."""

    size: int = 10
    decay: float = 1e-3
    name: str = "logistic"

    def _made(self) -> tuple[Vector, Vector]:
        return clouds(self.samples, self.size, np.random.default_rng((self.seed, 2)))

    @property
    def start(self) -> Vector:
        return np.zeros(self.size + 1)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return (1, self.size), (1,)

    def gradient(self, weights: Vector, rank: int, step: int) -> Vector:
        points, labels = self._batch(rank, step)
        wrong = _sigmoid(points @ weights[:-1] + weights[-1]) - labels
        slope = np.append(points.T @ wrong, wrong.sum()) / self.batch
        return slope + self.decay * weights

    def loss(self, weights: Vector) -> float:
        penalty = 0.5 * self.decay * weights @ weights
        return Classifier.loss(self, weights) + float(penalty)

    def _score(self, weights: Vector) -> Vector:
        return np.asarray(self._points @ weights[:-1] + weights[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Perceptron(Classifier):
    """A hidden layer of `size` tanh units on the spirals."""

    size: int = 16
    samples: int = 1000
    name: str = "perceptron"

    def _made(self) -> tuple[Vector, Vector]:
        return spirals(self.samples, np.random.default_rng((self.seed, 3)))

    @property
    def start(self) -> Vector:
        generator = np.random.default_rng((self.seed, 4))
        inner = generator.standard_normal((2, self.size))
        outer = generator.standard_normal(self.size) / np.sqrt(self.size)
        return np.concatenate([inner.ravel(), np.zeros(self.size), outer, np.zeros(1)])

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        width = self.size
        return (2, width), (width,), (1, width), (1,)

    def gradient(self, weights: Vector, rank: int, step: int) -> Vector:
        points, labels = self._batch(rank, step)
        inner, shift, outer, last = self._parts(weights)
        active = np.tanh(points @ inner + shift)
        wrong = (_sigmoid(active @ outer + last) - labels) / len(labels)
        back = np.outer(wrong, outer) * (1.0 - active**2)
        return np.concatenate(
            [(points.T @ back).ravel(), back.sum(axis=0), active.T @ wrong, [wrong.sum()]]
        )

    def _score(self, weights: Vector) -> Vector:
        inner, shift, outer, last = self._parts(weights)
        return np.asarray(np.tanh(self._points @ inner + shift) @ outer + last)

    def _parts(self, weights: Vector) -> tuple[Vector, Vector, Vector, float]:
        width = self.size
        return (
            weights[: 2 * width].reshape(2, width),
            weights[2 * width : 3 * width],
            weights[3 * width : 4 * width],
            float(weights[-1]),
        )


def _sigmoid(score: Vector) -> Vector:
    return 0.5 * (1.0 + np.tanh(0.5 * score))
