"""Read the output of nccl-tests: its text, or the JSON that it writes with -J.

A line of text has `size count type [redop [root]]`, then time (us), algbw, busbw and #wrong out of
place, then these four columns in place. If every iteration was timed, `i_min i_max i_p99 i_cv`
follow the columns out of place, and again the columns in place. A comment, the command line above
or the file's name says which collective was measured. Comments list the ranks, or the number of
ranks follows from busbw / algbw. Sizes are kept unchanged. Source: NVIDIA/nccl-tests, src/common.cu
and src/util.cu, PERFORMANCE.md.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sim.collectives.measured_network import bus_factor
from sim.collectives.schedule import kind_named
from sim.config import reads
from sim.config.errors import InputError
from sim.config.json_fault import json_fault
from sim.jobs.traces.operation_times import OperationTime, of_samples

_KINDS = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "sendrecv": "point_to_point",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
}
_KIND = re.compile(rf"(?<![a-z])({'|'.join(_KINDS)})(?![a-z]|_scatter)")
_PROGRAM = re.compile(rf"(?<![a-z])({'|'.join(_KINDS)})_perf")
_RANK = re.compile(r"#\s+Rank\s+(\d{1,9})\s.*?\bon\s+(\S+)\s+device")
_ITERATIONS = re.compile(r"(?<!warmup )(?<!agg )iters:\s*(\d{1,9})")
_COLUMNS = ("size", "count", "type", "redop", "root", *2 * ("time", "algbw", "busbw", "#wrong"))
_ROUNDED = 0.011  # GB/s: bandwidths have two decimals, and so have the times they come from
_SCALED = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")  # busbw / algbw: ranks
_DTYPES = {"float": "fp32", "half": "fp16", "bfloat16": "bf16", "double": "fp64"}


def read(path: Path) -> Iterator[OperationTime]:
    """Yield the measured times of a file in order, both out of place and in place.

    Raises `InputError`, which names the line that cannot be read, after the times before that line.
    """
    text = reads.text(path, errors="replace")
    if text.lstrip().startswith("{"):
        yield from _of_json(text, path)
    else:
        yield from _of_lines(text, path)


@dataclass(slots=True)
class _Header:
    """The facts in the lines above a table."""

    kind: str = ""
    iterations: int = 1
    columns: tuple[str, ...] = _COLUMNS
    hosts: dict[int, str] = field(default_factory=dict)

    def note(self, line: str) -> None:
        if program := _PROGRAM.search(line):
            self.kind = _KINDS[program[1]]
        if iterations := _ITERATIONS.search(line):
            self.iterations, self.hosts = int(iterations[1]), {}
        if rank := _RANK.search(line):
            self.hosts[int(rank[1])] = rank[2]
        words = tuple(line.strip("# \n").split())
        if words[:1] == ("size",) and "time" in words:
            self.columns = words


def _of_lines(text: str, path: Path) -> Iterator[OperationTime]:
    header, number, results = _Header(kind=_kind_of(path)), 0, 0
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if not (words and words[0].isdigit()):
            header.note(line)
            continue
        try:
            yield from _of_row(words, header, path.name)
        except ValueError as error:
            raise _wrong(path, number, str(error)) from None
        results += 1
    if not results:
        raise _wrong(path, number, "is where it ends, without a line of results")


def _kind_of(path: Path) -> str:
    name = _KIND.search(path.name.lower())
    return _KINDS[name[1]] if name else ""


def _of_row(words: Sequence[str], header: _Header, source: str) -> Iterator[OperationTime]:
    """Yield the out-of-place and the in-place time of a line of the table."""
    columns = header.columns
    if len(words) < len(columns):
        raise ValueError(f"has {len(words)} of {len(columns)} columns")
    first = columns.index("time")
    for column in (first, first + (len(columns) - first) // 2):
        time, algorithm, bus = words[column : column + 3]
        if time == "N/A" or words[0] == "0":
            continue
        _check(float(words[0]), float(time), float(algorithm), _wrong_in(words, columns, column))
        ranks = len(header.hosts) or _ranks(header.kind, float(algorithm), float(bus))
        _check_bus(header.kind, ranks, float(algorithm), float(bus))
        yield OperationTime(
            **_group(header.kind, ranks, header.hosts.values()),
            bytes=float(words[0]),
            dtype=_DTYPES.get(words[2], words[2]),
            seconds=float(time) * 1e-6,
            samples=header.iterations,
            source=source,
        )


def _wrong_in(words: Sequence[str], columns: Sequence[str], first: int) -> str:
    """Return the number of wrong elements. Before 2022 the column was the largest error: return
    0."""
    return words[first + 3] if "#wrong" in columns and len(words) > first + 3 else "0"


def _check(size: float, time: float, algorithm: float, wrong: object) -> None:
    """Raise `ValueError` if a row has wrong results, or if its algbw is not size / time."""
    if str(wrong) not in ("0", "N/A", "-1", "None"):
        raise ValueError(f"has {wrong} wrong elements: a wrong result is no measurement")
    rate = size / time * 1e-3
    if abs(rate - algorithm) > _ROUNDED + 0.02 * rate:
        raise ValueError(f"has {algorithm:g} GB/s where {size:g} B in {time:g} us are {rate:.3g}")


def _check_bus(kind: str, ranks: int, algorithm: float, bus: float) -> None:
    """Raise `ValueError` if busbw / algbw is not the ratio of this collective on `ranks` ranks."""
    if not kind or ranks < 2:
        return
    factor = bus_factor(kind_named(kind, "nccl-tests"), ranks)
    if abs(bus - factor * algorithm) > _ROUNDED * (1.0 + factor) + 0.02 * bus:
        fault = f"has {bus:g} GB/s on the bus where {kind} of {ranks} ranks at {algorithm:g} GB/s"
        raise ValueError(f"{fault} has {factor * algorithm:.3g}")


def _group(kind: str, ranks: int, hosts: Iterable[str]) -> dict[str, Any]:
    if not kind:
        raise ValueError("belongs to no known collective: neither the file nor its name says which")
    if not ranks:
        raise ValueError("belongs to an unknown number of ranks: no `#  Rank` lines above it")
    return {"operation": kind, "ranks": ranks, "nodes": len(set(hosts)) or 1}


def _ranks(kind: str, algorithm: float, bus: float) -> int:
    """Return the number of ranks that follows from busbw / algbw (PERFORMANCE.md), 0 if none does.

    >>> _ranks("all_reduce", 100.0, 175.0), _ranks("all_gather", 100.0, 93.75)
    (8, 16)
    """
    share = bus / algorithm / (2 if kind == "all_reduce" else 1) if algorithm else 1.0
    return round(1 / (1 - share)) if 0 < share < 0.999 and kind in _SCALED else 0


def _of_json(text: str, path: Path) -> Iterator[OperationTime]:
    try:
        report = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _wrong(path, *json_fault(error)) from None
    kind = _kind_of(path)
    if program := _PROGRAM.search(" ".join(map(str, report.get("args", ())))):
        kind = _KINDS[program[1]]
    hosts = [str(device.get("hostname")) for device in report.get("devices", ())]
    try:
        for result in report["results"]:
            yield from _of_result(result, kind, hosts, report.get("config", {}), path.name)
    except (KeyError, TypeError, ValueError) as error:
        raise _wrong(path, 1, f"holds no nccl-tests results ({error})") from None


def _of_result(
    result: Mapping[str, Any],
    kind: str,
    hosts: Sequence[str],
    config: Mapping[str, Any],
    source: str,
) -> Iterator[OperationTime]:
    """Yield the out-of-place and the in-place time of a result. If its iterations were timed one by
    one, a time has their jitter."""
    for name in ("out_of_place", "in_place"):
        place = result.get(name)
        if not place or not result["size"]:
            continue
        each = result.get(f"{name}_per_iter", {}).get("times_us", ())
        single = {"seconds": place["time"] * 1e-6, "samples": config.get("iterations", 1)}
        _check(result["size"], place["time"], place["alg_bw"], place.get("nwrong"))
        ranks = len(hosts) or _ranks(kind, place["alg_bw"], place["bus_bw"])
        _check_bus(kind, ranks, place["alg_bw"], place["bus_bw"])
        yield OperationTime(
            **_group(kind, ranks, hosts),
            **(of_samples([time * 1e-6 for time in each]) if each else single),
            bytes=float(result["size"]),
            dtype=_DTYPES.get(result["type"], result["type"]),
            source=source,
        )


def _wrong(path: Path, line: int, fault: str) -> InputError:
    remedy = "give the whole output of an nccl-tests run"
    return InputError(f"{path}, line {line}", fault, remedy)
