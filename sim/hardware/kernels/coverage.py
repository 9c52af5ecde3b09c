"""How often kernels lie where a profile's own spread of errors says that they do.

Half of the kernels that were kept out of a fit give the spread, the other half is held to it, and
the other way round: neither the fit nor the spread has seen what it is judged by.
"""

from collections.abc import Sequence
from math import sqrt
from statistics import NormalDist, fmean

LEVEL = 0.9
_LEAST = 4  # kept out; fewer say nothing


def coverage(errors: Sequence[float], *, level: float = LEVEL) -> float | None:
    """The share of logarithmic errors within the interval that every other one gives.

    None below four of them. The interval is that of a normal law around zero, because predictions
    are not moved by a bias.

    >>> coverage([0.1, -0.1, 0.1, -0.1]), coverage([0.1, 0.2])
    (1.0, None)
    >>> coverage([0.01, 0.1] * 50)  # the small ones' interval is too narrow for the others
    0.5
    """
    if len(errors) < _LEAST:
        return None
    halves = errors[::2], errors[1::2]
    inside = [
        abs(error) <= _reach(given, level)
        for given, judged in (halves, halves[::-1])
        for error in judged
    ]
    return fmean(inside)


def _reach(errors: Sequence[float], level: float) -> float:
    """Half the width of an interval around zero for one error more."""
    count = len(errors)
    sigma = sqrt(fmean(error**2 for error in errors) * (1.0 + 1.0 / count))
    return NormalDist().inv_cdf((1.0 + level) / 2.0) * sigma
