"""Readings from files of others: nccl-tests and PyTorch's profiler."""

from collections.abc import Iterable, Iterator
from math import isnan, sqrt
from pathlib import Path

from sim.collectives.schedule import KINDS
from sim.formats.operation_times import OperationTime


def read(path: Path) -> Iterator[OperationTime]:
    """The readings of one file, whatever of the known formats it is.

    Raises `InputError` naming the line at which it is cut short.
    """
    from sim.formats import kineto, nccl_tests

    return iter(kineto.read(path)) if _is_trace(path) else nccl_tests.read(path)


def _is_trace(path: Path) -> bool:
    """A profiler's trace, told from the JSON of nccl-tests by what its head names."""
    if path.suffix == ".gz":
        return True
    try:
        with path.open("rb") as file:
            head = file.read(1 << 16)
    except OSError:
        return False  # the reader says what is wrong
    named = b"traceEvents" in head or b"schemaVersion" in head
    return named and head.lstrip()[:1] == b"{"


def jitter(readings: Iterable[OperationTime]) -> str:
    """The `[jitter]` table of a scenario that iterations timed one by one stand for, or nothing.

    The sigma of a lognormal distribution, from the variances of all readings, each with its
    samples less one.

    >>> one = OperationTime(operation="broadcast", seconds=1e-5, ranks=2, samples=5, sigma=0.02)
    >>> print(jitter([one, one]))
    [[jitter.cause]]
    name = "collectives"
    kind = "lognormal"
    sigma = 0.02
    """
    known = [
        one for one in readings if one.samples > 1 and one.sigma > 0 and one.operation in KINDS
    ]
    freedom = sum(one.samples - 1 for one in known)
    if not freedom:
        return ""
    sigma = sqrt(sum((one.samples - 1) * one.sigma**2 for one in known) / freedom)
    lines = ("[[jitter.cause]]", 'name = "collectives"', 'kind = "lognormal"')
    return "\n".join([*lines, f"sigma = {sigma:.3g}"])


def table(readings: Iterable[OperationTime], most: int = 40) -> str:
    """Readings for people: time, and bandwidth where bytes are known."""
    shown = list(readings)
    lines = [f"{'operation':46}{'ranks':>6}{'nodes':>6}{'bytes':>14}{'us':>12}{'sigma':>7}{'n':>6}"]
    for one in shown[:most]:
        what = f"{one.operation} {one.name}".strip()
        size = "" if isnan(one.bytes) else f"{one.bytes:,.0f}"
        sigma = "" if isnan(one.sigma) else f"{one.sigma:.3f}"
        lines.append(
            f"{what[:45]:46}{one.ranks:6}{one.nodes:6}{size:>14}{1e6 * one.seconds:12,.1f}"
            f"{sigma:>7}{one.samples:6}"
        )
    if len(shown) > most:
        lines.append(f"and {len(shown) - most} more")
    return "\n".join(lines)
