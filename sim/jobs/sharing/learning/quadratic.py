"""A noisy quadratic with a known optimum: the textbook task of stochastic optimisation."""

from dataclasses import field

import numpy as np

from sim.config.dataclass import dataclass
from sim.jobs.sharing.learning.task import Vector, batch_generator


@dataclass(frozen=True, slots=True, kw_only=True)
class Quadratic:
    """f(w) = 1/2 sum_i a_i (w_i - 1)^2, with a_i from 1/`condition` to 1; its optimum is 1.

    A worker's gradient is a (w - 1 - `unlike` d_r) + `noise` N(0, 1) / sqrt(batch). The worker's
    own offset d_r is drawn once from N(0, 1). Offsets are centred over all `workers`, so unequal
    data do not move the optimum of the mean.

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
