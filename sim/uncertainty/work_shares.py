"""Shares of a step's time by kind of work, and how sure the times of each kind are."""

from collections import defaultdict
from collections.abc import Mapping
from functools import lru_cache
from math import log1p, sqrt
from statistics import fmean
from typing import TYPE_CHECKING

from sim.collectives.libraries import backend as backends
from sim.config.reads import remembered
from sim.engine.record import Record
from sim.hardware.device import Device
from sim.model.kernels import ONE_WAVE
from sim.parallel.job import Job
from sim.program.causes import HOST
from sim.program.operations import Compute, Segment
from sim.program.program import Program
from sim.uncertainty.intervals import Sigmas

if TYPE_CHECKING:
    from sim.collectives.libraries.profile import CollectiveResidual
    from sim.hardware.kernels.profile import KernelResidual


Seconds = defaultdict[str, float]
Residuals = list[tuple[str, float]]

_USUAL = 2.0  # the usual error of a class counts as much as so many measured shapes: assumed
_LEAST_BIAS = -0.99  # limits the logarithm for a profile that predicts almost no time


def work_shares(program: Program, record: Record) -> dict[str, float]:
    """Return shares of "gemm", "attention", "stream", "collective" and "host", adding up to one.

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
    """Return the shares of a cause's seconds by class of work, which add up to one."""
    if cause == HOST:
        return {HOST: 1.0}
    classes = _by_cause(program)[stage].get(cause)
    return classes or {"collective": 1.0}


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
                        classes = seconds.setdefault(item.cause, defaultdict(float))
                        for kind, spent in item.kernels:
                            classes["stream" if kind == ONE_WAVE else kind] += spent
        shares.append({cause: _normal(classes) for cause, classes in seconds.items()})
    return shares


def _normal(times: Seconds) -> dict[str, float]:
    total = sum(times.values())
    return {kind: spent / total for kind, spent in times.items()} if total > 0.0 else {}


def profiled(job: Job, backend: str = "nccl", *, share: float = 1.0) -> Sigmas | None:
    """Return the sigmas by the profiles of the device and of the fabric; None without profiles.

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
    measured = backends.measured(backend)
    return (
        [(residual.kind, _off(residual, residual.readings)) for residual in measured.residuals]
        if measured
        else []
    )


def _off(seen: "KernelResidual | CollectiveResidual", count: int) -> float:
    """Return the sigma of `count` predictions, shrunk towards the usual sigma if they are few.

    It includes the bias, because predictions are not corrected for the bias.
    """
    square = seen.sigma**2 + log1p(max(seen.bias, _LEAST_BIAS)) ** 2
    usual: float = getattr(Sigmas(), seen.kind)
    return sqrt((count * square + _USUAL * usual**2) / (count + _USUAL))
