"""Gaussian-process regression between measured shapes.

Rasmussen and Williams 2006, Gaussian Processes for Machine Learning: equations 2.23 and 2.24 for
the prediction, 2.30 for the marginal likelihood, 4.17 for the Matern covariance.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import log, pi
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.hardware.kernels.profile import Smoothness

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Field:
    """A smooth field through measured values; far from all of them it is zero.

    `points` [n, features], `values` [n].
    """

    points: Floats
    values: Floats
    smoothness: Smoothness

    @cached_property
    def _solved(self) -> Floats:
        return np.linalg.solve(self._covariance, self.values).astype(np.float64)

    @property
    def _covariance(self) -> Floats:
        noise = self.smoothness.noise**2 * np.eye(len(self.values))
        covariance: Floats = covariances(self.points, self.points, self.smoothness) + noise
        return covariance

    def at(self, point: Sequence[float]) -> float:
        """The expected value at a point.

        >>> line = np.array([[0.0], [1.0], [2.0]])
        >>> smooth = Smoothness(length=1.0, amplitude=1.0, noise=1e-6)
        >>> field = Field(points=line, values=np.array([0.0, 0.5, 1.0]), smoothness=smooth)
        >>> round(field.at([1.0]), 3), round(field.at([99.0]), 3)
        (0.5, 0.0)
        """
        near = covariances(np.asarray([point], dtype=float), self.points, self.smoothness)
        return float((near @ self._solved)[0])

    def likelihood(self) -> float:
        """The logarithm of the values' probability under this smoothness."""
        sign, size = np.linalg.slogdet(self._covariance)
        if sign <= 0:
            return -np.inf
        return float(-0.5 * (self.values @ self._solved + size + len(self.values) * log(2 * pi)))


def covariances(left: Floats, right: Floats, smooth: Smoothness) -> Floats:
    """Matern covariance of order 3/2 between two sets of points, [len(left), len(right)]."""
    apart: Any = left[:, None, :] - right[None, :, :]
    distance = np.sqrt(3.0 * np.sum(apart**2, axis=-1)) / smooth.length
    covariance: Floats = smooth.amplitude**2 * (1.0 + distance) * np.exp(-distance)
    return covariance


LENGTHS, AMPLITUDES = (0.5, 1.0, 2.0, 3.0, 5.0, 8.0), (0.05, 0.1, 0.2, 0.4)
NOISES = (0.01, 0.03, 0.06, 0.1)


def _choices() -> Iterator[Smoothness]:
    for length, amplitude, noise in product(LENGTHS, AMPLITUDES, NOISES):
        yield Smoothness(length=length, amplitude=amplitude, noise=noise)


def likeliest(points: Floats, values: Floats) -> Smoothness:
    """The smoothness under which the values are likeliest, from a coarse grid."""
    return max(
        _choices(),
        key=lambda smooth: Field(points=points, values=values, smoothness=smooth).likelihood(),
    )
