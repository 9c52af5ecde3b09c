"""A calibrated profile: kernel times measured on a device, as `sim calibrate kernels` writes them.

`topologies/profiles/NAME.toml` says which device was measured where, when and with which software.
It gives the fitted rates (`[rates]`, which replace the rates of the device's file), how smoothly
measured and modelled times differ (`[smoothness]`), and the errors on shapes that were kept out of
the fit (`[[residuals]]`). It also gives launches, copies and slowdowns
(`sim.hardware.kernels.environment`). A CSV beside it holds the measured kernels
(`sim.hardware.kernels.measurements`), another CSV the host's times of operators
(`sim.hardware.kernels.dispatch`).
"""

import math
from bisect import bisect_left
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any

from sim.config import catalog
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.reads import remembered
from sim.config.schema import Signed
from sim.config.units import Ge
from sim.hardware.kernels import dispatch
from sim.hardware.kernels.dispatch import OperatorTime
from sim.hardware.kernels.environment import CopyTime, Environment, LaunchTimes, Slowdown
from sim.hardware.kernels.measurements import KernelClass, Measurement, class_of, read


@dataclass(frozen=True, slots=True)
class Curve:
    """Measured points (bytes, seconds) of a kind of kernel, by rising size.

    Between two sizes the curve is linear in the logarithms of both. Below the smallest size the
    time stays constant (a kernel's floor); above the largest size the bandwidth stays constant.
    """

    points: tuple[tuple[float, float], ...]

    def __call__(self, size: float) -> float:
        """Seconds of a kernel that moves `size` bytes.

        >>> curve = Curve(((1e3, 1e-6), (1e5, 1e-4)))
        >>> round(curve(1e4), 9), curve(10.0), round(curve(1e6), 9)
        (1e-05, 1e-06, 0.001)
        """
        (first, floor), (last, longest) = self.points[0], self.points[-1]
        if size <= first:
            return floor
        if size >= last:
            return longest * size / last
        right = bisect_left([measured for measured, _ in self.points], size)
        (b0, t0), (b1, t1) = self.points[right - 1], self.points[right]
        return t0 * math.exp(math.log(t1 / t0) * math.log(size / b0) / math.log(b1 / b0))

    @property
    def range(self) -> tuple[float, float]:
        return self.points[0][0], self.points[-1][0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Smoothness:
    """`length` is the distance over which points correlate, in the units of features. `amplitude`
    is the standard deviation of the field, `noise` the standard deviation of a measurement."""

    length: float
    amplitude: float
    noise: float

    def __post_init__(self) -> None:
        if not min(self.length, self.amplitude, self.noise) > 0:
            raise ValueError("length, amplitude and noise must be positive")


FORMAT = 1
BUSY = 1.0  # 95th percentile of residuals above which the measured machine was probably busy
FOLDER = "topologies/profiles"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelResidual:
    """Errors of the fit on the kept-out shapes of a class of kernels.

    `median` and `p95` are of |predicted / measured - 1|, `bias` is the mean of predicted / measured
    - 1. `sigma` is the standard deviation of log(measured / predicted).
    """

    kind: str
    shapes: Annotated[int, Ge(0)]
    median: Annotated[float, Ge(0)]
    p95: Annotated[float, Ge(0)]
    bias: Annotated[float, Signed()]
    sigma: Annotated[float, Ge(0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The content of a profile's TOML file. `measurements` names the CSV of kernels beside it,
    `operators` the CSV of the host's times (empty: none)."""

    format: int = FORMAT
    device: str
    measurements: str
    operators: str = ""
    provenance: dict[str, str | int | float] = field(default_factory=dict)
    rates: dict[str, Any] = field(default_factory=dict)
    smoothness: dict[str, Smoothness] = field(default_factory=dict)
    residuals: tuple[KernelResidual, ...] = ()
    host: LaunchTimes | None = None
    copies: tuple[CopyTime, ...] = ()
    overlaps: tuple[Slowdown, ...] = ()

    def __post_init__(self) -> None:
        if self.format > FORMAT:
            fault = f"format = {self.format} is newer than this program reads ({FORMAT})"
            raise ValueError(f"{fault}; install a newer version, or calibrate again")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Profile:
    """Measured kernels of a device, and `operators` of its host. Two profiles are equal only if
    they are the same object."""

    origin: Origin
    measurements: tuple[Measurement, ...] = ()
    operators: tuple[OperatorTime, ...] = ()

    @property
    def doubts(self) -> tuple[str, ...]:
        """A warning for each class of kernels whose errors suggest that the machine was busy."""
        return tuple(
            busy(self.origin.device, f"kernels of class {residual.kind}", residual.p95)
            for residual in self.origin.residuals
            if residual.p95 > BUSY
        )

    @property
    def environment(self) -> Environment:
        origin = self.origin
        return Environment(host=origin.host, copies=origin.copies, overlaps=origin.overlaps)

    def fitted(self, kind: KernelClass) -> tuple[Measurement, ...]:
        """The measurements of a class of kernels that the fit uses."""
        return tuple(
            measured
            for measured in self.measurements
            if class_of(measured.kernel) == kind and not measured.kept_out
        )

    def curves(self) -> dict[str, Curve]:
        """Time against bytes of memory-bound kernels, by kind."""
        seconds: dict[str, dict[float, float]] = {}
        for measured in self.fitted("stream"):
            kernel = measured.kernel
            seconds.setdefault(kernel.name, {})[kernel.bytes] = measured.seconds
        return {kind: Curve(tuple(sorted(points.items()))) for kind, points in seconds.items()}


def busy(profile: str, predictions: str, p95: float) -> str:
    """The warning that a profile may have been measured beside other work; every run prints it."""
    errs = f"{predictions} err by {p95:.0%} (95th percentile)"
    return f"profile of {profile}: {errs}; measured on a busy machine?"


def rated(device: dict[str, Any], profile: Profile) -> dict[str, Any]:
    """A device's TOML document with the fitted rates of its profile.

    >>> origin = Origin(device="d", measurements="", rates={"gemm": {"floor": "3 us"}})
    >>> rated({"sms": 8, "gemm": {"floor": "2 us", "burst": 1.1}}, Profile(origin=origin))
    {'sms': 8, 'gemm': {'floor': '3 us', 'burst': 1.1}}
    """
    return catalog.overlaid(device, profile.origin.rates)


def located(name: str, where: str) -> Path:
    """The file of a profile's name or path. Raises `InputError` for a file that does not exist."""
    return catalog.find(FOLDER, name, where=where)


def load(name: str, *, where: str = "command line") -> Profile:
    """The profile of a name in `topologies/profiles`, or of a path: the same object as long as the
    profile's files do not change. Raises `InputError`."""
    return _profile(located(name, where))


@remembered(16)
def _profile(path: Path) -> Profile:
    origin = catalog.validate(catalog.read(path), Origin, catalog.place(path))
    table = path.parent / origin.measurements
    measurements = tuple(read(table, path))
    samples = origin.provenance.get("samples", len(measurements))
    if samples != len(measurements):
        fault = f"samples = {samples}, but {table.name} has {len(measurements)} kernels"
        remedy = "take the CSV that the profile came with, or correct samples"
        raise InputError(catalog.place(path), fault, remedy)
    file = origin.operators
    operators = dispatch.read(path.parent / file, path) if file else ()
    return Profile(origin=origin, measurements=measurements, operators=operators)
