"""Readings as a table of text."""

from collections.abc import Sequence
from math import isnan

from sim.jobs.traces.operation_times import OperationTime


def text(readings: Sequence[OperationTime], most: int = 40) -> str:
    """Time, bytes and samples of at most so many readings."""
    lines = [f"{'operation':46}{'ranks':>6}{'nodes':>6}{'bytes':>14}{'us':>12}{'sigma':>7}{'n':>6}"]
    lines += map(_line, readings[:most])
    if len(readings) > most:
        lines.append(f"and {len(readings) - most} more")
    return "\n".join(lines)


def _line(reading: OperationTime) -> str:
    operation = f"{reading.operation} {reading.name}".strip()
    size = "" if isnan(reading.bytes) else f"{reading.bytes:,.0f}"
    sigma = "" if isnan(reading.sigma) else f"{reading.sigma:.3f}"
    return (
        f"{operation[:45]:46}{reading.ranks:6}{reading.nodes:6}{size:>14}"
        f"{1e6 * reading.seconds:12,.1f}{sigma:>7}{reading.samples:6}"
    )
