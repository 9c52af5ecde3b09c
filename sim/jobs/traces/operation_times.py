"""Measured times of operations, and the CSV that keeps them.

Each line has a kernel, or a collective of one size in one group:

    operation,name,ranks,nodes,groups,bytes,dtype,samples,seconds,sigma,source
    all_reduce,,8,1,1,1048576,fp32,20,4.2e-05,0.03,all_reduce.txt
    kernel,gemm_bf16_128x128,1,1,1,,,12,0.0002,0.01,trace.json
"""

import csv
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from io import StringIO
from operator import attrgetter
from pathlib import Path
from typing import Any

from sim.config import tables
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.files import atomic_write
from sim.program.routed import Routed


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationTime:
    """An operation that took `seconds`, the median of `samples` repetitions.

    `operation` is "kernel", called `name`, or the kind of a collective among `ranks` on `nodes`.
    `bytes` are counted as in nccl-tests. `groups` such groups ran the collective at the same time.
    `sigma` is the standard deviation of the samples' logarithms (the jitter of a lognormal
    distribution), NaN if single samples are not known. `source` is the file, or the library, with
    the measurement. If items are `routed`, `bytes` counts one copy of each item. Files do not keep
    `routed`.
    """

    operation: str
    seconds: float
    name: str = ""
    ranks: int = 1
    nodes: int = 1
    groups: int = 1
    bytes: float = math.nan
    dtype: str = ""
    samples: int = 1
    sigma: float = math.nan
    source: str = ""
    routed: Routed | None = None

    def __post_init__(self) -> None:
        if not 0 < self.seconds < math.inf:
            raise ValueError(f"{self.seconds} s is not a valid duration")
        if min(self.ranks, self.nodes, self.groups, self.samples) < 1:
            raise ValueError("ranks, nodes, groups and samples must be at least 1")


_COLUMNS = [field.name for field in fields(OperationTime) if field.name != "routed"]


def of_samples(times: Sequence[float]) -> dict[str, Any]:
    """The fields of an `OperationTime` from times (s): median, number, sigma of the logarithms.

    >>> of_samples([2.0, 2.0, 2.0])
    {'seconds': 2.0, 'samples': 3, 'sigma': 0.0}
    """
    logs = [math.log(time) for time in times if time > 0]
    sigma = statistics.stdev(logs) if len(logs) > 1 else math.nan
    return {"seconds": statistics.median(times), "samples": len(times), "sigma": sigma}


def merged(times: Iterable[OperationTime]) -> list[OperationTime]:
    """A time for each operation, sorted: the median over repeated measurements.

    >>> twice = [OperationTime(operation="reduce", seconds=t, sigma=0.1) for t in (1.0, 3.0)]
    >>> [(time.seconds, time.samples) for time in merged(twice)]
    [(2.0, 2)]
    """
    passes: dict[OperationTime, list[OperationTime]] = {}
    for time in times:
        passes.setdefault(replace(time, seconds=1.0, samples=1, sigma=0.0), []).append(time)
    medians = [
        replace(
            operation,
            seconds=statistics.median(time.seconds for time in repeated),
            samples=sum(time.samples for time in repeated),
            sigma=statistics.median(time.sigma for time in repeated),
        )
        for operation, repeated in passes.items()
    ]
    return sorted(medians, key=attrgetter("operation", "name", "ranks", "groups", "bytes"))


def heading() -> str:
    """The first line of the file."""
    return ",".join(_COLUMNS) + "\n"


def line(time: OperationTime) -> str:
    """A time as a line of the file; unknown cells stay empty.

    >>> line(OperationTime(operation="broadcast", seconds=2e-5, ranks=2, bytes=8.0))
    'broadcast,2e-05,,2,1,1,8,,1,,\\n'
    """
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerow(_cell(getattr(time, name)) for name in _COLUMNS)
    return text.getvalue()


def _cell(value: str | float) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.6g}" if value % 1 else f"{value:.0f}"
    return str(value)


def write(times: Iterable[OperationTime], path: Path) -> None:
    """Write the whole file. Raises `InputError` where that is not possible."""
    with atomic_write(path) as part:
        part.write_text(heading() + "".join(map(line, times)), encoding="utf-8")


def read(path: Path) -> list[OperationTime]:
    """All times of a file that `write` wrote. Raises `InputError` naming the line that is wrong."""
    times = []
    for where, cells in tables.rows(path, headings=_COLUMNS):
        try:
            times.append(_time(cells))
        except ValueError as error:
            fault = f"is not a measured time ({error})"
            raise InputError(where, fault, "correct or remove the line") from None
    return times


def _time(row: dict[str, str]) -> OperationTime:
    whole_numbers = {key: int(row[key]) for key in ("ranks", "nodes", "groups", "samples")}
    numbers = {key: float(row[key] or "nan") for key in ("seconds", "bytes", "sigma")}
    texts = {key: row[key].strip() for key in ("operation", "name", "dtype", "source")}
    return OperationTime(**whole_numbers, **numbers, **texts)  # type: ignore[arg-type]  # by their keys
