"""Readings: how long an operation took when it was measured, and the CSV that keeps them.

One line a kernel, or a collective of one size among one group:

    operation,name,ranks,nodes,groups,bytes,dtype,samples,seconds,sigma,source
    all_reduce,,8,1,1,1048576,fp32,20,4.2e-05,0.03,all_reduce.txt
    kernel,gemm_bf16_128x128,1,1,1,,,12,0.0002,0.01,trace.json
"""

import csv
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from io import StringIO
from pathlib import Path
from typing import Any

from sim.config.errors import InputError
from sim.config.files import whole


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationTime:
    """An operation that took `seconds`, the median of `samples`.

    `operation` is "kernel", which `name` then names, or the kind of a collective among `ranks` on
    `nodes`, of `bytes` as nccl-tests counts them, while `groups` such groups did the same. `sigma`
    is the standard deviation of the logarithm of the samples, NaN where they are not known one by
    one: the jitter of a lognormal distribution. `source` is the file, or the library, it is from.
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

    def __post_init__(self) -> None:
        if not 0 < self.seconds < math.inf:
            raise ValueError(f"a time of {self.seconds} s is none")
        if min(self.ranks, self.nodes, self.groups, self.samples) < 1:
            raise ValueError("ranks, nodes, groups and samples must be at least 1")


def of_samples(times: Sequence[float]) -> dict[str, Any]:
    """What `OperationTime` keeps of times (s): median, number and sigma of their logarithms.

    >>> of_samples([2.0, 2.0, 2.0])
    {'seconds': 2.0, 'samples': 3, 'sigma': 0.0}
    """
    logs = [math.log(time) for time in times if time > 0]
    sigma = statistics.stdev(logs) if len(logs) > 1 else math.nan
    return {"seconds": statistics.median(times), "samples": len(times), "sigma": sigma}


def merged(readings: Iterable[OperationTime]) -> list[OperationTime]:
    """One reading for each operation, in order: the medians of several passes over it.

    >>> twice = [OperationTime(operation="reduce", seconds=t, sigma=0.1) for t in (1.0, 3.0)]
    >>> [(one.seconds, one.samples) for one in merged(twice)]
    [(2.0, 2)]
    """
    passes: dict[OperationTime, list[OperationTime]] = {}
    for one in readings:
        passes.setdefault(replace(one, seconds=1.0, samples=1, sigma=0.0), []).append(one)
    found = [
        replace(
            what,
            seconds=statistics.median(one.seconds for one in same),
            samples=sum(one.samples for one in same),
            sigma=statistics.median(one.sigma for one in same),
        )
        for what, same in passes.items()
    ]
    return sorted(
        found, key=lambda one: (one.operation, one.name, one.ranks, one.groups, one.bytes)
    )


def heading() -> str:
    """The first line of the file."""
    return ",".join(field.name for field in fields(OperationTime)) + "\n"


def line(reading: OperationTime) -> str:
    """A reading as a line of the file; what is not known stays empty.

    >>> line(OperationTime(operation="broadcast", seconds=2e-5, ranks=2, bytes=8.0))
    'broadcast,2e-05,,2,1,1,8,,1,,\\n'
    """
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerow(
        _cell(getattr(reading, field.name)) for field in fields(OperationTime)
    )
    return text.getvalue()


def _cell(value: str | float) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.6g}" if value % 1 else f"{value:.0f}"
    return str(value)


def write(readings: Iterable[OperationTime], path: Path) -> None:
    """The whole file. Raises `InputError` where it cannot be written."""
    with whole(path) as part:
        part.write_text(heading() + "".join(map(line, readings)), encoding="utf-8")


def read(path: Path) -> list[OperationTime]:
    """All readings of a file that `write` wrote; `InputError` names the line that is wrong."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise InputError(str(path), "cannot be read as text", "check the path") from None
    if text.partition("\n")[0] + "\n" != heading():
        raise InputError(f"{path}, line 1", "is not the heading of readings", heading().strip())
    found = []
    for number, row in enumerate(csv.DictReader(StringIO(text)), start=2):
        try:
            found.append(_reading(row))
        except (ValueError, TypeError, AttributeError) as error:
            what = f"is no reading ({error})"
            raise InputError(f"{path}, line {number}", what, "mend or leave out the line") from None
    return found


def _reading(row: dict[str, str]) -> OperationTime:
    whole_numbers = {key: int(row[key]) for key in ("ranks", "nodes", "groups", "samples")}
    numbers = {key: float(row[key] or "nan") for key in ("seconds", "bytes", "sigma")}
    texts = {key: row[key].strip() for key in ("operation", "name", "dtype", "source")}
    return OperationTime(**whole_numbers, **numbers, **texts)  # type: ignore[arg-type]  # by their keys
