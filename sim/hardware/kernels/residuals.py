"""A profile compared with its own measurements: predictions, their errors, and achieved rates.

Intervals are cross-validated. Each half of the kernels that were kept out of a fit is tested
against the spread of errors in the other half. Neither fit nor spread has seen its test data.
"""

from collections.abc import Iterable, Sequence
from math import log, sqrt
from statistics import NormalDist, fmean, mean, median

from sim.config import catalog
from sim.config.dataclass import dataclass
from sim.hardware.device import Device
from sim.hardware.kernels.calibrated import Calibrated
from sim.hardware.kernels.measurements import Measurement, class_of
from sim.hardware.kernels.profile import Profile, rated
from sim.hardware.kernels.time import kernel_time
from sim.model.kernels import Attention, Kernel, MemoryBound

LEVEL = 0.9
_LEAST = 4  # kept-out kernels; fewer tell nothing


def coverage(errors: Sequence[float], *, level: float = LEVEL) -> float | None:
    """The share of logarithmic errors within the interval that the other half of the errors gives.

    None for fewer than four errors. The interval follows a normal law around zero, because
    predictions are not corrected for a bias.

    >>> coverage([0.1, -0.1, 0.1, -0.1]), coverage([0.1, 0.2])
    (1.0, None)
    >>> coverage([0.01, 0.1] * 50)  # small errors give an interval too narrow for large errors
    0.5
    """
    if len(errors) < _LEAST:
        return None
    halves = errors[::2], errors[1::2]
    inside = [
        abs(error) <= _reach(given, level)
        for given, tested in (halves, halves[::-1])
        for error in tested
    ]
    return fmean(inside)


def _reach(errors: Sequence[float], level: float) -> float:
    """Half the width of a prediction interval around zero."""
    count = len(errors)
    sigma = sqrt(fmean(error**2 for error in errors) * (1.0 + 1.0 / count))
    return NormalDist().inv_cdf((1.0 + level) / 2.0) * sigma


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelPrediction:
    """A measurement beside two predictions (s): by the whole profile, and by the model alone with
    the profile's fitted rates."""

    measured: Measurement
    predicted: float
    modelled: float

    @property
    def error(self) -> float:
        """predicted / measured - 1."""
        return self.predicted / self.measured.seconds - 1.0

    @property
    def group(self) -> str:
        """Class, precision and generation of attention; for memory-bound kernels only the class."""
        kernel = self.measured.kernel
        if isinstance(kernel, MemoryBound):
            return "stream"
        generation = kernel.name if isinstance(kernel, Attention) else ""
        return f"{class_of(kernel)} {kernel.precision} {generation}".rstrip()

    @property
    def rate(self) -> float:
        """The achieved rate: FLOP/s, or B/s of a memory-bound kernel."""
        kernel = self.measured.kernel
        work = kernel.bytes if isinstance(kernel, MemoryBound) else kernel.flops
        return work / self.measured.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassErrors:
    """A group of measurements: their number, and the errors on measurements kept out of the fit.

    `coverage` is the share of kept-out kernels within the 90 % interval of the other half. `best`
    is the measured rate (FLOP/s or B/s) that one timing in twenty exceeds, `peak` the nominal rate.
    """

    group: str
    shapes: int
    kept_out: int
    median: float
    p95: float
    bias: float
    coverage: float | None
    best: float
    peak: float


def device_of(profile: Profile) -> Device:
    """The device that a profile describes, with the fitted rates. Raises `InputError`."""
    folder = "topologies/devices"
    path = catalog.find(folder, profile.origin.device, where="profile, device")
    document = {**rated(catalog.document(folder, path), profile), "profile": ""}
    return catalog.validate(document, Device, catalog.place(path))


def predictions(profile: Profile) -> list[KernelPrediction]:
    """Every measurement of a profile with its predictions."""
    device = device_of(profile)
    offered = tuple(device.attention)

    def modelled(kernel: Kernel) -> float:
        return kernel_time(kernel, device, (kernel.name, *offered))

    predict, rows = Calibrated(profile, modelled), []
    for measurement in profile.measurements:
        plain, profiled = modelled(measurement.kernel), predict(measurement.kernel)
        predicted = plain if profiled is None else profiled.seconds
        rows.append(KernelPrediction(measured=measurement, predicted=predicted, modelled=plain))
    return rows


def errors_by_class(profile: Profile, rows: Sequence[KernelPrediction]) -> list[ClassErrors]:
    """The table of `sim show`: one line for each group of kernels."""
    device = device_of(profile)
    groups = dict.fromkeys(row.group for row in rows)
    return [_errors(group, [row for row in rows if row.group == group], device) for group in groups]


def _errors(group: str, rows: Sequence[KernelPrediction], device: Device) -> ClassErrors:
    errors = [row.error for row in rows if row.measured.kept_out]
    _, precision, _ = (*group.split(" "), "", "")[:3]
    sizes = sorted(map(abs, errors))
    return ClassErrors(
        group=group,
        shapes=len(rows),
        kept_out=len(errors),
        median=median(sizes) if sizes else 0.0,
        p95=sizes[round(0.95 * (len(sizes) - 1))] if sizes else 0.0,
        bias=mean(errors) if errors else 0.0,
        coverage=coverage([log(1.0 + error) for error in errors]),
        best=_typical_best(row.rate for row in _largest(rows)),
        peak=device.peak_rate(precision) if precision else device.memory_bandwidth,
    )


def _largest(rows: Sequence[KernelPrediction]) -> list[KernelPrediction]:
    """All kernels, but of memory-bound kernels only those above half of the largest size."""
    if not isinstance(rows[0].measured.kernel, MemoryBound):
        return list(rows)
    most = max(row.measured.kernel.bytes for row in rows)
    return [row for row in rows if row.measured.kernel.bytes > most / 2]


def _typical_best(rates: Iterable[float]) -> float:
    """The rate that one timing in twenty exceeds: a single lucky timing does not count.

    >>> _typical_best(float(x) for x in range(101))
    95.0
    """
    ranked = sorted(rates)
    return ranked[round(0.95 * (len(ranked) - 1))]
