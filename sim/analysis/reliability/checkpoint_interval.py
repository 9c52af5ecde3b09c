"""The best interval between checkpoints by the classic formulas.

For a checkpoint of cost C (s) and a mean time M (s) between failures: Young 1974,
tau = sqrt(2 C M); Daly 2006, equation 37, tau = sqrt(2 C M) [1 + sqrt(C / 2M) / 3 + C / 18M] - C
for C < 2M, else M.
"""

from math import sqrt

import numpy as np

from sim.engine.training_run import Conduct


def young(cost: float, between: float) -> float:
    """Young's best interval between checkpoints (s).

    Source: Young 1974, A first order approximation to the optimum checkpoint interval.

    >>> young(5.0, 1000.0)
    100.0
    """
    return sqrt(2.0 * cost * between)


def daly(cost: float, between: float) -> float:
    """Daly's higher-order best interval between checkpoints (s).

    Source: Daly 2006, A higher order estimate of the optimum checkpoint interval for restart
    dumps, equation 37.

    >>> round(daly(5.0, 1000.0), 2)
    96.69
    """
    if cost >= 2.0 * between:
        return between
    ratio = cost / (2.0 * between)
    return young(cost, between) * (1.0 + sqrt(ratio) / 3.0 + ratio / 9.0) - cost


def expected_share(conduct: Conduct, between: float) -> float:
    """The effective share by Daly 2006, equation 20, with detection and restart of every failure.

    M e^(-(D+R)/M) (tau/M) / (e^((tau+C)/M) - 1)
    """
    if between == float("inf"):
        return conduct.interval / (conduct.interval + conduct.stop)
    away = (conduct.detection + conduct.restart) / between
    cycle = (conduct.interval + conduct.stop) / between
    return float(np.exp(-away) * (conduct.interval / between) / np.expm1(cycle))
