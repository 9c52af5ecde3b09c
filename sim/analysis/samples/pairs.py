"""Pairs of runs with the same seed: random effects that both share cancel in differences."""

import numpy as np
from numpy.typing import NDArray

from sim.config.dataclass import dataclass

Floats = NDArray[np.float64]

# Student's t at 95 % by degrees of freedom, from 1 (scipy.stats.t.ppf(0.95, n)). The last value is
# also taken for more degrees of freedom, where it is up to 5 % too large.
_T90 = (6.31, 2.92, 2.35, 2.13, 2.02, 1.94, 1.89, 1.86, 1.83, 1.81, 1.80, 1.78, 1.77, 1.76, 1.75,
        1.75, 1.74, 1.73, 1.73, 1.72)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """The share by which a value is larger than another value with the same seed. `by` is
    exp(mean logarithm of the pairs' ratios) - 1; `low` to `high` is its 90 % interval by Student's
    t. `both` counts the pairs in which both values are finite and positive."""

    by: float
    low: float
    high: float
    both: int

    @property
    def alike(self) -> bool:
        """Whether chance explains the difference."""
        return self.low <= 0.0 <= self.high


def paired(here: Floats, there: Floats) -> Paired | None:
    """Return how much larger `there` is than `here`; None with fewer than two pairs.

    >>> found = paired(np.array([1.0, 1.0, 1.0]), np.array([1.1, 1.2, 0.9]))
    >>> round(found.by, 2), round(found.low, 2), round(found.high, 2), found.both
    (0.06, -0.17, 0.36, 3)
    """
    both = np.isfinite(here) & np.isfinite(there) & (here > 0.0) & (there > 0.0)
    count = int(both.sum())
    if count < 2:
        return None
    ratios = np.log(there[both] / here[both])
    reach = half(ratios)
    by, low, high = (float(np.expm1(ratios.mean() + off)) for off in (0.0, -reach, reach))
    return Paired(by=by, low=low, high=high, both=count)


def half(values: Floats) -> float:
    """Return half the width of the 90 % interval of the mean of at least two values."""
    count = len(values)
    return float(_T90[min(count - 1, len(_T90)) - 1] * np.std(values, ddof=1) / count**0.5)
