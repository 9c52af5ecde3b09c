"""Shares of a step's time by kind of work, and how sure the times of each kind are.

The device time of a job comes from a profile or from the model.
"""

from collections import defaultdict
from collections.abc import Mapping
from functools import lru_cache
from math import log1p, sqrt
from statistics import fmean
from typing import TYPE_CHECKING

from sim.collectives.libraries import profile as fabrics
from sim.config.dataclass import dataclass
from sim.config.reads import remembered
from sim.engine.record import Record
from sim.hardware.device import Device
from sim.parallel.job import Job
from sim.program.causes import HOST
from sim.program.operations import Compute, Segment
from sim.program.program import Program
from sim.uncertainty.intervals import Sigmas

if TYPE_CHECKING:
    from sim.hardware.kernels.profile import KernelResidual
from collections import Counter
from collections.abc import Iterator
from dataclasses import field

from sim.hardware.kernels.time import sourced_time
from sim.model.kernels import ONE_WAVE, Kernel
from sim.model.operators import kernels_of
from sim.parallel.weight_update import optimizer_kernels

MOST_WARNINGS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTime:
    """Shares of a step's kernel seconds by source. `outside` has, by kernels' names, the first size
    outside of the measured range, the longest kernels first. Their seconds count as the model's,
    because a profile extrapolates by the model."""

    shares: dict[str, float]
    outside: dict[str, str] = field(default_factory=dict)

    @property
    def warnings(self) -> Iterator[str]:
        """A line for each kernel outside of the range in which its profile was measured."""
        for name, where in list(self.outside.items())[:MOST_WARNINGS]:
            yield f"{name} leaves the range of the profile: {where}"
        more = len(self.outside) - MOST_WARNINGS
        if more > 0:
            yield f"{more} more kernels leave the range of the profile"


def device_time(job: Job) -> DeviceTime:
    """Shares of the kernel seconds of one step of the whole job, idle devices not counted."""
    if not job.device.profile:
        return DeviceTime(shares={"model": 1.0})
    sources = {"profile": 0.0, "model": 0.0}
    outside: dict[str, str] = {}
    spent: defaultdict[str, float] = defaultdict(float)
    for kernel, count in _kernels(job).items():
        timed = sourced_time(kernel, job.kernels_on, job.stack.attention)
        sources["model" if timed.outside else timed.source] += count * timed.seconds
        if timed.outside:
            outside.setdefault(kernel.name, timed.outside)
            spent[kernel.name] += count * timed.seconds
    total = sum(sources.values())
    return DeviceTime(
        shares={source: seconds / total for source, seconds in sources.items()},
        outside={name: outside[name] for name in sorted(spent, key=lambda name: -spent[name])},
    )


def _kernels(job: Job) -> "Counter[Kernel]":
    """The kernels of all stages and how often a replica runs each in a step."""
    kernels: Counter[Kernel] = Counter()
    for stage, chunks in enumerate(job.chunks):
        slots = Counter(slot for chunk in chunks for slot in chunk.slots)
        for slot, count in slots.items():
            block = job.block(*slot)
            for kernel in kernels_of((*block.forward, *block.recompute, *block.backward)):
                kernels[kernel] += count * job.plan.microbatches
        kernels.update(optimizer_kernels(job, stage))
    return kernels


Seconds = defaultdict[str, float]
Residuals = list[tuple[str, float]]

_USUAL = 2.0  # the usual error of a class counts as much as so many measured shapes: assumed
_LEAST_BIAS = -0.99  # of a profile that predicts almost no time


def work_shares(program: Program, record: Record) -> dict[str, float]:
    """Shares of "gemm", "attention", "stream", "collective" and "host", adding up to one.

    Each share is d log(step time) / d log(times of that class): the class's share of the critical
    path. Seconds of compute on the path are split in the proportions of their stage's kernels.
    """
    from sim.engine.critical_path import critical_path

    seconds: Seconds = defaultdict(float)
    for (stage, cause), spent in critical_path(record).items():
        for kind, share in mix(program, stage, cause).items():
            seconds[kind] += share * spent
    total = sum(seconds.values())
    return {kind: spent / total for kind, spent in seconds.items()} if total > 0.0 else {}


def mix(program: Program, stage: int, cause: str) -> Mapping[str, float]:
    """The classes of one cause of the accounts, as shares that add up to one."""
    if cause == HOST:
        return {HOST: 1.0}
    own = _by_cause(program)[stage].get(cause)
    return own or {"collective": 1.0}


@lru_cache(maxsize=8)
def _by_cause(program: Program) -> list[dict[str, dict[str, float]]]:
    """Per stage and cause, the classes of kernels in one pass of each kind and in the optimizer."""
    shares = []
    for stage in program.stages:
        seconds: dict[str, Seconds] = {}
        plain = (ops for at, ops in stage.ops_by_variant.items() if not (at.first or at.last))
        operations = [operation for ops in plain for operation in ops]
        if not operations:
            operations = [op for ops in stage.ops_by_variant.values() for op in ops]
        for operation in (*operations, *stage.closing):
            if isinstance(operation, Compute):
                for item in operation.work.flat():
                    if isinstance(item, Segment):
                        own = seconds.setdefault(item.cause, defaultdict(float))
                        for kind, spent in item.kernels:
                            own["stream" if kind == ONE_WAVE else kind] += spent
        shares.append({cause: _normal(own) for cause, own in seconds.items()})
    return shares


def _normal(times: Seconds) -> dict[str, float]:
    total = sum(times.values())
    return {kind: spent / total for kind, spent in times.items()} if total > 0.0 else {}


def profiled(job: Job, backend: str = "nccl", *, share: float = 1.0) -> Sigmas | None:
    """The sigmas by the profiles of the device and of the fabric; None without profiles.

    `share` is the share of the device's time that comes from its profile; the rest has the default
    sigmas. Residuals come from shapes and sizes that a fit did not see, so they include the noise
    of the measurements. The residuals of a fabric's collectives are averaged as squares.
    """
    squares: dict[str, list[float]] = {}
    for kind, sigma in (*_of_device(job.device, share), *_of_fabric(backend)):
        squares.setdefault(kind, []).append(sigma**2)
    if not squares:
        return None
    return Sigmas().replaced({kind: sqrt(fmean(found)) for kind, found in squares.items()})


def _of_device(device: Device, share: float) -> Residuals:
    residuals = device.measured.origin.residuals if device.measured else ()
    return [
        (
            residual.kind,
            share * _off(residual, residual.shapes)
            + (1.0 - share) * getattr(Sigmas(), residual.kind),
        )
        for residual in residuals
    ]


@remembered(64)
def _of_fabric(backend: str) -> Residuals:
    measured = fabrics.find(backend)
    return (
        [(residual.kind, _off(residual, residual.readings)) for residual in measured.residuals]
        if measured
        else []
    )


def _off(seen: "KernelResidual | fabrics.CollectiveResidual", count: int) -> float:
    """The sigma of `count` predictions, drawn to the usual sigma where they are few.

    It includes the bias, because predictions are not corrected for the bias.
    """
    square = seen.sigma**2 + log1p(max(seen.bias, _LEAST_BIAS)) ** 2
    usual: float = getattr(Sigmas(), seen.kind)
    return sqrt((count * square + _USUAL * usual**2) / (count + _USUAL))
