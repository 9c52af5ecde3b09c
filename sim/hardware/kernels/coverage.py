"""Cross-validation of a profile's intervals: how many kernels lie inside them.

One half of the kernels that were kept out of a fit gives the spread of errors, the other half is
tested against it, and the other way round, so that neither fit nor spread has seen its test data.
"""

from collections.abc import Sequence
from math import sqrt
from statistics import NormalDist, fmean

LEVEL = 0.9
_LEAST = 4  # kept-out kernels; fewer tell nothing


def coverage(errors: Sequence[float], *, level: float = LEVEL) -> float | None:
    """The share of logarithmic errors within the interval that the other half of them gives.

    None below four errors. The interval is that of a normal law around zero, because predictions
    are not corrected for a bias.

    >>> coverage([0.1, -0.1, 0.1, -0.1]), coverage([0.1, 0.2])
    (1.0, None)
    >>> coverage([0.01, 0.1] * 50)  # the interval of the small ones is too narrow for the large
    0.5
    """
    if len(errors) < _LEAST:
        return None
    halves = errors[::2], errors[1::2]
    inside = [
        abs(error) <= _reach(given, level)
        for given, tested in (halves, halves[::-1])
        for error in tested
    ]
    return fmean(inside)


def _reach(errors: Sequence[float], level: float) -> float:
    """Half the width of a prediction interval around zero."""
    count = len(errors)
    sigma = sqrt(fmean(error**2 for error in errors) * (1.0 + 1.0 / count))
    return NormalDist().inv_cdf((1.0 + level) / 2.0) * sigma
