"""Two classifiers on data that this project makes itself: logistic regression and a perceptron.

The data are two Gaussian clouds (logistic regression) or points on two interleaved spirals
(multilayer perceptron), drawn once from the seed. A worker draws its batches from all points. Where
`unlike` is set, it draws mostly from its own part of the points, which are sorted by label.
"""

from dataclasses import field

import numpy as np

from sim.config.dataclass import dataclass
from sim.jobs.sharing.learning.draws import DataSplit, Rows, drawn_rows
from sim.jobs.sharing.learning.task import Vector


@dataclass(frozen=True, slots=True)
class LabelledPoints:
    """Points, their labels (0 or 1), and the split that says which points a worker draws from."""

    points: Vector
    labels: Vector
    split: DataSplit
    _order: Rows = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_order", np.argsort(self.labels, kind="stable"))

    def batch(self, rank: int, step: int, size: int) -> tuple[Vector, Vector]:
        """A worker's batch. Where data are unlike, the worker's own part is a piece of the sorted
        data."""
        chosen = drawn_rows(self._order, self.split, rank, step, size)
        return self.points[chosen], self.labels[chosen]


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
class Logistic:
    """Logistic regression with an L2 penalty of `decay`/2 |w|^2; mean cross-entropy."""

    size: int = 10
    samples: int = 2000
    batch: int = 32
    decay: float = 1e-3
    unlike: float = 0.0
    workers: int = 1
    seed: int = 0
    name: str = "logistic"
    _data: LabelledPoints = field(init=False, repr=False)

    def __post_init__(self) -> None:
        points, labels = clouds(self.samples, self.size, np.random.default_rng((self.seed, 2)))
        object.__setattr__(self, "_data", LabelledPoints(points, labels, self))

    @property
    def start(self) -> Vector:
        return np.zeros(self.size + 1)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return (1, self.size), (1,)

    def gradient(self, weights: Vector, rank: int, step: int) -> Vector:
        points, labels = self._data.batch(rank, step, self.batch)
        wrong = _sigmoid(points @ weights[:-1] + weights[-1]) - labels
        slope = np.append(points.T @ wrong, wrong.sum()) / self.batch
        return slope + self.decay * weights

    def loss(self, weights: Vector) -> float:
        score = self._data.points @ weights[:-1] + weights[-1]
        fit = np.mean(np.logaddexp(0.0, score) - self._data.labels * score)
        return float(fit + 0.5 * self.decay * weights @ weights)

    def accuracy(self, weights: Vector) -> float:
        score = self._data.points @ weights[:-1] + weights[-1]
        return _right(score, self._data.labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class Perceptron:
    """A hidden layer of `hidden` tanh units on the spirals; mean cross-entropy."""

    hidden: int = 16
    samples: int = 1000
    batch: int = 32
    unlike: float = 0.0
    workers: int = 1
    seed: int = 0
    name: str = "perceptron"
    _data: LabelledPoints = field(init=False, repr=False)

    def __post_init__(self) -> None:
        points, labels = spirals(self.samples, np.random.default_rng((self.seed, 3)))
        object.__setattr__(self, "_data", LabelledPoints(points, labels, self))

    @property
    def start(self) -> Vector:
        generator = np.random.default_rng((self.seed, 4))
        inner = generator.standard_normal((2, self.hidden))
        outer = generator.standard_normal(self.hidden) / np.sqrt(self.hidden)
        return np.concatenate([inner.ravel(), np.zeros(self.hidden), outer, np.zeros(1)])

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        width = self.hidden
        return (2, width), (width,), (1, width), (1,)

    def gradient(self, weights: Vector, rank: int, step: int) -> Vector:
        points, labels = self._data.batch(rank, step, self.batch)
        inner, shift, outer, last = self._parts(weights)
        active = np.tanh(points @ inner + shift)
        wrong = (_sigmoid(active @ outer + last) - labels) / len(labels)
        back = np.outer(wrong, outer) * (1.0 - active**2)
        return np.concatenate(
            [(points.T @ back).ravel(), back.sum(axis=0), active.T @ wrong, [wrong.sum()]]
        )

    def loss(self, weights: Vector) -> float:
        score = self._score(weights)
        return float(np.mean(np.logaddexp(0.0, score) - self._data.labels * score))

    def accuracy(self, weights: Vector) -> float:
        return _right(self._score(weights), self._data.labels)

    def _score(self, weights: Vector) -> Vector:
        inner, shift, outer, last = self._parts(weights)
        return np.asarray(np.tanh(self._data.points @ inner + shift) @ outer + last)

    def _parts(self, weights: Vector) -> tuple[Vector, Vector, Vector, float]:
        width = self.hidden
        return (
            weights[: 2 * width].reshape(2, width),
            weights[2 * width : 3 * width],
            weights[3 * width : 4 * width],
            float(weights[-1]),
        )


def _sigmoid(score: Vector) -> Vector:
    return 0.5 * (1.0 + np.tanh(0.5 * score))


def _right(score: Vector, labels: Vector) -> float:
    """The share of points whose score has the sign of their label."""
    return float(np.mean((score > 0.0) == (labels > 0.5)))
