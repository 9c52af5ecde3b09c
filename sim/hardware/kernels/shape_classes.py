"""Errors of a device's file, and of its profile, on measured kernels, by class of shape."""

from collections.abc import Callable, Iterator, Sequence
from math import ceil
from statistics import mean, median

from sim.config.dataclass import dataclass
from sim.hardware import device as devices
from sim.hardware.device import Device
from sim.hardware.kernels.profile import Profile
from sim.hardware.kernels.residuals import KernelPrediction, predictions
from sim.hardware.kernels.time import kernel_time
from sim.model.kernels import Attention, Gemm, Kernel, MemoryBound

LONG = 20e-6  # s; launches and clocks of whole microseconds dominate shorter times
_ENOUGH = 5  # a class with fewer kernels has no line


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeErrors:
    """Errors (predicted / measured - 1) on a class of kernels that take longer than `LONG`.

    `packaged` holds errors of the device's file on all kernels, `kept_out` errors of the profile on
    the kernels that its fit did not see.
    """

    name: str
    packaged: tuple[float, ...]
    kept_out: tuple[float, ...]


def errors_by_shape(profile: Profile) -> list[ShapeErrors]:
    """The errors by class of kernels; a product belongs to several classes. Classes of fewer than
    five kernels are left out."""
    device = devices.load(profile.origin.device)
    rows = [row for row in predictions(profile) if row.measured.seconds > LONG]
    found = [
        ShapeErrors(
            name=name,
            packaged=tuple(packaged(row, device) for row in of_class),
            kept_out=tuple(row.error for row in of_class if row.measured.kept_out),
        )
        for name, belongs in _classes(rows, device)
        if len(of_class := [row for row in rows if belongs(row.measured.kernel)]) >= _ENOUGH
    ]
    return found


def packaged(row: KernelPrediction, device: Device) -> float:
    """predicted / measured - 1 of a kernel, by the constants of a device's file."""
    kernel = row.measured.kernel
    return kernel_time(kernel, device, (kernel.name, *device.attention)) / row.measured.seconds - 1


def summary(errors: Sequence[float]) -> tuple[float, float, float]:
    """Median and 95th percentile of the sizes of errors, and their mean.

    >>> summary([0.1, -0.1, 0.0])
    (0.1, 0.1, 0.0)
    """
    sizes = sorted(map(abs, errors))
    return median(sizes), sizes[round(0.95 * (len(sizes) - 1))], mean(errors)


Belongs = Callable[[Kernel], bool]


def _classes(rows: Sequence[KernelPrediction], device: Device) -> Iterator[tuple[str, Belongs]]:
    yield "products", lambda kernel: isinstance(kernel, Gemm)
    for name, belongs in _PRODUCTS:
        yield f"  {name}", _product(belongs)
    yield "  last wave below half", _product(lambda gemm: 0 < _last_wave(gemm, device) < 0.5)
    yield "attention", lambda kernel: isinstance(kernel, Attention)
    yield "memory-bound", lambda kernel: isinstance(kernel, MemoryBound)
    kernels = (row.measured.kernel for row in rows)
    for kind in dict.fromkeys(k.name for k in kernels if isinstance(k, MemoryBound)):
        yield f"  {kind}", _of_kind(kind)


_PRODUCTS: tuple[tuple[str, Callable[[Gemm], bool]], ...] = (
    ("m to 64: bound by memory", lambda gemm: gemm.m <= 64),
    ("m 65 to 256", lambda gemm: 64 < gemm.m <= 256),
    ("m 257 to 1024", lambda gemm: 256 < gemm.m <= 1024),
    ("m above 1024", lambda gemm: gemm.m > 1024),
    ("m above 256, k below 2048", lambda gemm: gemm.m > 256 and gemm.k < 2048),
    ("m above 256, n below 2048", lambda gemm: gemm.m > 256 and gemm.n < 2048),
    ("from 1e12 FLOPs", lambda gemm: gemm.flops >= 1e12),
)


def _product(belongs: Callable[[Gemm], bool]) -> Belongs:
    return lambda kernel: isinstance(kernel, Gemm) and belongs(kernel)


def _of_kind(kind: str) -> Belongs:
    return lambda kernel: isinstance(kernel, MemoryBound) and kernel.name == kind


def _last_wave(gemm: Gemm, device: Device) -> float:
    """How full the last wave of 256 x 128 tiles is, 0 for a single wave and for a full one."""
    waves = gemm.batch * ceil(gemm.m / 256) * ceil(gemm.n / 128) / device.sms
    return waves % 1.0 if waves > 1 else 0.0
