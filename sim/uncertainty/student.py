"""Student's t with four degrees of freedom: a law for errors of which a few are far off.

Location and scale are maximum-likelihood estimates. Errors that are far off count less, so
incidents and outliers do not determine the scale (Lange, Little and Taylor 1989, "Robust
statistical modeling using the t distribution", JASA 84, equation 7, and section 5, which finds four
degrees good for most data). With four degrees, distribution and quantiles have closed forms (Shaw
2006, "Sampling Student's t distribution", J. Computational Finance 9).
"""

from collections.abc import Sequence
from math import acos, copysign, cos, sqrt

import numpy as np
from numpy.typing import NDArray

FREEDOM = 4.0
_ITERATIONS = 50  # of the estimates of location and scale
_LEAST = 1e-4  # smallest scale, about the rounding of printed step times


def quantile(probability: float) -> float:
    """Return the value below which a standardised error lies with this probability.

    >>> round(quantile(0.95), 3), round(quantile(0.5), 3)
    (2.132, 0.0)
    """
    root = sqrt(4.0 * probability * (1.0 - probability))
    square = max(4.0 * (cos(acos(root) / 3.0) / root - 1.0), 0.0)
    return copysign(sqrt(square), probability - 0.5)


def below(value: float) -> float:
    """Return the probability that a standardised error is less than `value`.

    >>> round(below(quantile(0.9)), 9), below(0.0)
    (0.9, 0.5)
    """
    wide = 1.0 + value * value / 4.0
    return 0.5 + 0.375 * value / sqrt(wide) * (1.0 - value * value / wide / 12.0)


def weights(squares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the weights of errors, from the squares of error / scale: (nu + 1) / (nu + square)."""
    return (FREEDOM + 1.0) / (FREEDOM + squares)


def fit(errors: Sequence[float], estimated: int = 1) -> tuple[float, float]:
    """Location and scale of errors; estimates of locations use `estimated` degrees of freedom.

    >>> calm, far = fit([-0.1, 0.0, 0.1] * 20), fit([-0.1, 0.0, 0.1] * 20 + [3.0])
    >>> [abs(round(number, 2)) for number in (*calm, *far)]
    [0.0, 0.08, 0.0, 0.08]
    """
    values = np.asarray(errors, dtype=float)
    location, scale = float(np.median(values)), 0.0
    freedom = len(values) - estimated
    if freedom < 1:
        return location, scale
    scale = max(1.4826 * float(np.median(np.abs(values - location))), _LEAST)  # of a normal law
    for _ in range(_ITERATIONS):
        counts = weights(((values - location) / scale) ** 2)
        location = float(counts @ values / counts.sum())
        scale = max(sqrt(float(counts @ (values - location) ** 2) / freedom), _LEAST)
    return location, scale
