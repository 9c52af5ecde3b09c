"""Which times of kernels, host calls and collectives do traces of PyTorch's profiler contain?

If several ranks are traced, the time of a collective is the shortest time among the ranks. The
other ranks arrive earlier, and their times include a wait for the last rank. If one rank is traced,
the time of a collective includes this rank's wait.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from sim.analysis.calibration.fitting import profile_file
from sim.analysis.calibration.fitting.device_profile import traced
from sim.analysis.calibration.fitting.kernel_tables import refuse_of_other
from sim.analysis.calibration.timing.clock import summary
from sim.collectives.schedule import KINDS
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.hardware import device as devices
from sim.hardware import nearest_device
from sim.hardware.kernels import dispatch
from sim.hardware.kernels.dispatch import OperatorTime
from sim.hardware.kernels.measurements import Measurement
from sim.jobs.traces import operation_times
from sim.jobs.traces.kineto import Key, samples_of, trace_of
from sim.jobs.traces.kineto_operators import host_calls, timed_kernels
from sim.jobs.traces.operation_times import OperationTime, of_samples
from sim.model.kernels import Kernel

_INFLATING = {"with_stack": "stacks", "record_shapes": "shapes", "profile_memory": "memory"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A trace that was read: its file, the driver's name of its device, and its software, if known.
    `recorded` lists what else the profiler recorded (stacks, shapes ...), which slows the host."""

    file: str
    device: str
    software: str
    recorded: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Median times of kernels (each with its number of calls), of the host for each operator, and
    of collectives."""

    sources: tuple[Source, ...]
    kernels: tuple[tuple[Measurement, int], ...]
    host: tuple[OperatorTime, ...]
    collectives: tuple[OperationTime, ...]


def evidence_of(paths: Sequence[Path], device: str) -> Evidence:
    """Read the traces of a job's ranks on a device. Raises `InputError`, also if a trace was
    recorded on another device."""
    sources, calls, samples = [], [], []
    times: defaultdict[Kernel, list[float]] = defaultdict(list)
    for path in paths:
        trace = trace_of(path)
        sources.append(_source(path, trace, device))
        events = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
        for kernel, seconds in timed_kernels(events):
            times[kernel].append(seconds)
        calls.append(host_calls(events))
        samples.append({k: v for k, v in samples_of(trace).items() if k[0][1] in KINDS})
    host = traced(chain.from_iterable(calls))
    if not times and not host and not any(samples):
        fault = "has no kernels with their sizes, no collectives and no operators with launches"
        raise InputError(str(paths[0]), fault, "record with record_shapes=True")
    ranks = f" of {len(paths)} ranks" if len(paths) > 1 else ""
    kernels = ((_measured(kernel, each), len(each)) for kernel, each in times.items())
    return Evidence(
        sources=tuple(sources),
        kernels=tuple(kernels),
        host=host,
        collectives=tuple(_collectives(samples, paths[0].name + ranks)),
    )


def write(evidence: Evidence, out: Path) -> tuple[Path, ...]:
    """Write the table of kernels to `out`, and the tables of the host and of collectives to files
    beside `out`. A table without rows is not written. Returns the paths written."""
    host, collectives = (out.with_stem(f"{out.stem}-{part}") for part in ("host", "collectives"))
    if evidence.kernels:
        profile_file.write_table([measured for measured, _ in evidence.kernels], out)
    if evidence.host:
        dispatch.write(evidence.host, host)
    if evidence.collectives:
        operation_times.write(evidence.collectives, collectives)
    there = zip(
        (out, host, collectives),
        (evidence.kernels, evidence.host, evidence.collectives),
        strict=True,
    )
    return tuple(path for path, rows in there if rows)


def _measured(kernel: Kernel, seconds: Sequence[float]) -> Measurement:
    middle, spread = summary(seconds)
    return Measurement(kernel=kernel, seconds=middle, spread=spread)


def _collectives(ranks: Sequence[Mapping[Key, list[float]]], source: str) -> list[OperationTime]:
    """Return the time of each collective by size and group. The time of a call is the shortest
    among the ranks; the time of a collective is the median over its calls."""
    keys = dict.fromkeys(key for rank in ranks for key in rank)
    found = []
    for key in keys:
        each = [rank[key] for rank in ranks if key in rank]
        calls = min(map(len, each))
        least = np.min([seconds[:calls] for seconds in each], axis=0).tolist()
        found.append(OperationTime(**dict(key), **of_samples(least), source=source))
    return found


def _source(path: Path, trace: Mapping[str, Any], device: str) -> Source:
    first: Any = next(iter(trace.get("deviceProperties") or ()), None)
    name = str(first.get("name", "")) if isinstance(first, dict) else ""
    generation = devices.load(device, where="--as").generation
    refuse_of_other(path, trace["traceEvents"], generation)
    known = nearest_device.nearest(name, 0.0)
    if known and devices.load(known).generation != generation:
        fault = f"was recorded on {name!r}, but --as names a device of generation {generation!r}"
        raise InputError(str(path), fault, f"write --as {known}")
    recorded = (said for key, said in _INFLATING.items() if trace.get(key))
    return Source(file=path.name, device=name, software=_software(trace), recorded=tuple(recorded))


def _software(trace: Mapping[str, Any]) -> str:
    """Return the version of CUDA or HIP; a trace does not hold the version of torch.

    >>> _software({"cuda_runtime_version": 12040}), _software({"hip_runtime_version": 60443483})
    ('CUDA 12.4', 'HIP 6.4')
    """
    for key, name, minor in (("cuda", "CUDA", 10), ("hip", "HIP", 100_000)):
        version = trace.get(f"{key}_runtime_version")
        if isinstance(version, int):
            thousands, rest = divmod(version, 100 * minor)
            return f"{name} {thousands}.{rest // minor}"
    return ""
