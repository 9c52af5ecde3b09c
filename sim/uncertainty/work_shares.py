"""What kinds of work a step's time consists of, and how sure the times of each kind are."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from math import log1p, sqrt
from statistics import fmean

from sim.collectives.libraries import profile as fabrics
from sim.engine.accounts import HOST
from sim.engine.critical_path import critical_path
from sim.engine.folded import Score
from sim.engine.timeline import Timeline
from sim.hardware.device import Device
from sim.hardware.kernels import profile as profiles
from sim.model.kernels import Attention, Gemm, Item, Kernel, Overlap
from sim.parallel.work import Job
from sim.program import Collective
from sim.uncertainty.intervals import Sigmas

Seconds = defaultdict[str, float]
Residuals = list[tuple[str, float]]

_USUAL = (
    2.0  # shapes or sizes that the usual error of a class counts for beside measured ones: assumed
)
_LEAST_BIAS = -0.99  # of a profile that says almost no time at all


def work_shares(job: Job, score: Score, timeline: Timeline) -> dict[str, float]:
    """Shares of "gemm", "attention", "stream", "collective" and "host", adding up to one.

    Each is d log(step time) / d log(times of that class): its share of the critical path, on which
    seconds of compute are split as the kernels of their stage are.
    """
    seconds: Seconds = defaultdict(float)
    for (stage, cause), spent in critical_path(score, timeline).items():
        for kind, share in mix(job, stage, cause).items():
            seconds[kind] += share * spent
    total = sum(seconds.values())
    return {kind: spent / total for kind, spent in seconds.items()} if total > 0.0 else {}


def mix(job: Job, stage: int, cause: str) -> Mapping[str, float]:
    """The classes of one cause of the accounts, as shares that add up to one."""
    if cause == "compute":
        return _normal(_compute(job, stage))
    if cause == "recompute":
        return _normal(_times(job, job.layer.recompute))
    if cause == "optimizer":
        return {"stream": 1.0}
    return {HOST: 1.0} if cause == HOST else {"collective": 1.0}


def _compute(job: Job, stage: int) -> Seconds:
    found: Seconds = defaultdict(float)
    for chunk in job.chunks[stage]:
        parts = (
            (job.layer, chunk.layers),
            (job.embedding, chunk.embedding),
            (job.head, chunk.head),
        )
        for work, count in parts:
            if count:
                for kind, seconds in _times(job, (*work.forward, *work.backward)).items():
                    found[kind] += count * seconds
    return found


def _times(job: Job, items: Iterable[Item]) -> Seconds:
    found: Seconds = defaultdict(float)
    for item in items:
        kernels = item.kernels if isinstance(item, Overlap) else (item,)
        for kernel in kernels:
            if not isinstance(kernel, Collective):
                found[_class(kernel)] += job.time(kernel)
    return found


def _class(kernel: Kernel) -> str:
    if isinstance(kernel, Gemm):
        return "gemm"
    return "attention" if isinstance(kernel, Attention) else "stream"


def _normal(times: Seconds) -> dict[str, float]:
    total = sum(times.values())
    return {kind: spent / total for kind, spent in times.items()} if total > 0.0 else {}


def profiled(job: Job, backend: str = "nccl", *, share: float = 1.0) -> Sigmas | None:
    """How far times are off as the profiles of the device and of the fabric say; None without any.

    `share` is that of the device's time which its profile says; the rest is as sure as without it.
    Residuals are those of shapes and sizes that a fit did not see, so the noise of the
    measurements themselves is in them. A fabric has one for each collective: their mean square.
    """
    squares: dict[str, list[float]] = {}
    for kind, sigma in (*_of_device(job.device, share), *_of_fabric(backend)):
        squares.setdefault(kind, []).append(sigma**2)
    if not squares:
        return None
    return Sigmas().replaced({kind: sqrt(fmean(found)) for kind, found in squares.items()})


def _of_device(device: Device, share: float) -> Residuals:
    if not device.profile:
        return []
    residuals = profiles.load(device.profile, where=device.name).origin.residuals
    return [
        (one.kind, share * _off(one, one.shapes) + (1.0 - share) * getattr(Sigmas(), one.kind))
        for one in residuals
    ]


@cache
def _of_fabric(backend: str) -> Residuals:
    measured = fabrics.find(backend)
    return [(one.kind, _off(one, one.readings)) for one in measured.residuals] if measured else []


def _off(seen: profiles.KernelResidual | fabrics.CollectiveResidual, count: int) -> float:
    """How far `count` predictions were off, drawn to the usual where they are few.

    A bias is part of it, because predictions are not moved by it.
    """
    square = seen.sigma**2 + log1p(max(seen.bias, _LEAST_BIAS)) ** 2
    usual: float = getattr(Sigmas(), seen.kind)
    return sqrt((count * square + _USUAL * usual**2) / (count + _USUAL))
