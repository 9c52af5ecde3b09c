"""A profile held against its own measurements: what is predicted of each, what each achieved."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log
from statistics import mean, median

from sim.config import catalog
from sim.hardware.device import Device
from sim.hardware.kernels.calibrated import Calibrated
from sim.hardware.kernels.coverage import coverage
from sim.hardware.kernels.profile import Measurement, Profile, class_of, rated
from sim.hardware.kernels.time import kernel_time
from sim.model.kernels import Attention, Kernel, MemoryBound


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelPrediction:
    """A measurement beside the profile's prediction (s) and, without what was measured, the
    model's with the profile's rates."""

    measured: Measurement
    predicted: float
    modelled: float

    @property
    def error(self) -> float:
        """predicted / measured - 1."""
        return self.predicted / self.measured.seconds - 1.0

    @property
    def group(self) -> str:
        """Class, precision and generation of attention; of memory-bound kernels the class alone."""
        kernel = self.measured.kernel
        if isinstance(kernel, MemoryBound):
            return "stream"
        generation = kernel.name if isinstance(kernel, Attention) else ""
        return f"{class_of(kernel)} {kernel.precision} {generation}".rstrip()

    @property
    def rate(self) -> float:
        """What was achieved: FLOP/s, of a memory-bound kernel B/s."""
        kernel = self.measured.kernel
        work = kernel.bytes if isinstance(kernel, MemoryBound) else kernel.flops
        return work / self.measured.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassErrors:
    """A group of measurements: how many, how far off where they were kept out of the fit, the
    highest rate seen (FLOP/s or B/s) and that of the device's data sheet.

    `coverage` is the share of kernels kept out that lie within the 90 % interval of the others."""

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
    """The device that a profile describes, with the rates that were fitted. Raises `InputError`."""
    path = catalog.find("topologies/devices", profile.origin.device, where="profile, device")
    document = {**rated(catalog.read(path), profile), "profile": ""}
    return catalog.validate(document, Device, catalog.place(path))


def predictions(profile: Profile) -> list[KernelPrediction]:
    """Every measurement of a profile with what would be predicted of it."""
    device = device_of(profile)
    offered = tuple(device.attention)

    def modelled(kernel: Kernel) -> float:
        return kernel_time(kernel, device, (kernel.name, *offered))

    predict = Calibrated(profile, modelled)
    found = []
    for one in profile.measurements:
        plain, known = modelled(one.kernel), predict(one.kernel)
        predicted = plain if known is None else known.seconds
        found.append(KernelPrediction(measured=one, predicted=predicted, modelled=plain))
    return found


def errors_by_class(profile: Profile, rows: Sequence[KernelPrediction]) -> list[ClassErrors]:
    """The table of `sim show`: one line a class and precision."""
    device = device_of(profile)
    groups = dict.fromkeys(row.group for row in rows)
    return [_line(group, [row for row in rows if row.group == group], device) for group in groups]


def _line(group: str, rows: Sequence[KernelPrediction], device: Device) -> ClassErrors:
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
    """Of memory-bound kernels those that no cache holds; all others."""
    most = max(row.measured.kernel.bytes for row in rows)
    streams = isinstance(rows[0].measured.kernel, MemoryBound)
    return [row for row in rows if not streams or row.measured.kernel.bytes > most / 2]


def _typical_best(rates: Iterable[float]) -> float:
    """The rate that one in twenty exceeds: a single lucky timing does not count.

    >>> _typical_best(float(x) for x in range(101))
    95.0
    """
    ranked = sorted(rates)
    return ranked[round(0.95 * (len(ranked) - 1))]
