"""The jitter of a scenario that has the scatter of measured collectives."""

from collections.abc import Iterable
from math import sqrt

from sim.collectives.schedule import KINDS
from sim.jobs.traces.operation_times import OperationTime


def jitter(readings: Iterable[OperationTime]) -> str:
    """The `[jitter]` table for iterations that were timed one by one; empty without any.

    The sigma of a lognormal distribution, from the variances of all readings, each weighted with
    its samples less one.

    >>> reading = OperationTime(operation="broadcast", seconds=1e-5, ranks=2, samples=5, sigma=0.02)
    >>> print(jitter([reading, reading]))
    [[jitter.cause]]
    name = "collectives"
    kind = "lognormal"
    sigma = 0.02
    """
    scattered = [
        reading
        for reading in readings
        if reading.samples > 1 and reading.sigma > 0 and reading.operation in KINDS
    ]
    freedom = sum(reading.samples - 1 for reading in scattered)
    if not freedom:
        return ""
    sigma = sqrt(sum((r.samples - 1) * r.sigma**2 for r in scattered) / freedom)
    lines = ("[[jitter.cause]]", 'name = "collectives"', 'kind = "lognormal"')
    return "\n".join([*lines, f"sigma = {sigma:.3g}"])
