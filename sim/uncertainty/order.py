"""Which of two layouts of a job is faster, and how surely.

Errors of layouts of one job are alike, so the order of two layouts is surer than their times. The
log of the ratio of two measured steps is that of the simulated steps, give or take sqrt(2) x
`apart`. Here `apart` is the scale of errors that layouts of one job do not share."""

from math import exp, log, sqrt

from sim.uncertainty import student
from sim.uncertainty.intervals import LEVEL


def faster(step: float, other: float, apart: float) -> float:
    """The probability that a job's layout with a predicted `step` is faster than the `other`.

    Of measured pairs with a probability of 90 to 95 %, 93 % were in this order (5,000 pairs).

    >>> round(faster(1.0, 1.1, 0.05), 2), faster(1.0, 1.0, 0.05)
    (0.88, 0.5)
    """
    return student.below(log(other / step) / (sqrt(2.0) * apart))


def longer(step: float, other: float, apart: float, level: float = LEVEL) -> tuple[float, float]:
    """Return the least and the largest share by which the step of the `other` layout is longer than
    `step`, with probability `level`. Errors that both layouts share cancel.

    >>> low, high = longer(1.0, 1.1, 0.05)
    >>> round(low, 2), round(high, 2), round(1.0 + high, 3) == round(1.21 / (1.0 + low), 3)
    (-0.05, 0.28, True)
    """
    reach = student.quantile((1.0 + level) / 2.0) * sqrt(2.0) * apart
    return other / step * exp(-reach) - 1.0, other / step * exp(reach) - 1.0


def told_apart(apart: float, level: float = LEVEL) -> float:
    """The share by which a step must be longer to be the slower step with probability `level`.

    >>> round(told_apart(0.05), 3), round(faster(1.0, 1.0 + told_apart(0.05), 0.05), 3)
    (0.115, 0.9)
    """
    return exp(student.quantile(level) * sqrt(2.0) * apart) - 1.0
