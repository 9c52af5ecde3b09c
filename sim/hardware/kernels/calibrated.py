"""Kernel times from a profile: measured shapes as measured, others by the corrected model.

A matrix product or an attention kernel takes the time of the device's fitted rates times
exp(field). The field is a smooth interpolation of log(measured / modelled) over the logarithms of
the shape. Far from every measured shape the factor is 1, and the tile-and-wave model extrapolates.
A memory-bound kernel lies on its kind's curve of time against bytes.

The interpolation is Gaussian-process regression. Rasmussen and Williams 2006, Gaussian Processes
for Machine Learning: equations 2.23 and 2.24 for the prediction, 2.30 for the marginal likelihood,
4.17 for the Matern covariance.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import product
from math import exp, log, log2, pi
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.config.dataclass import dataclass
from sim.hardware.kernels.measurements import ANY, KernelClass, Measurement, variant
from sim.hardware.kernels.profile import Curve, Profile, Smoothness
from sim.model.kernels import Attention, Gemm, Kernel, MemoryBound

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Field:
    """A smooth field through measured values; far from all measured points it is zero.

    `values` [n] were measured at `points` [n, features].
    """

    points: Floats
    values: Floats
    smoothness: Smoothness

    @cached_property
    def _solved(self) -> Floats:
        return np.linalg.solve(self._covariance, self.values).astype(np.float64)

    @property
    def _covariance(self) -> Floats:
        noise = self.smoothness.noise**2 * np.eye(len(self.values))
        covariance: Floats = covariances(self.points, self.points, self.smoothness) + noise
        return covariance

    def at(self, point: Sequence[float]) -> float:
        """The expected value at a point.

        >>> line = np.array([[0.0], [1.0], [2.0]])
        >>> smooth = Smoothness(length=1.0, amplitude=1.0, noise=1e-6)
        >>> field = Field(points=line, values=np.array([0.0, 0.5, 1.0]), smoothness=smooth)
        >>> round(field.at([1.0]), 3), round(field.at([99.0]), 3)
        (0.5, 0.0)
        """
        near = covariances(np.asarray([point], dtype=float), self.points, self.smoothness)
        return float((near @ self._solved)[0])

    def likelihood(self) -> float:
        """The logarithm of the values' probability under this smoothness."""
        sign, size = np.linalg.slogdet(self._covariance)
        if sign <= 0:
            return -np.inf
        return float(-0.5 * (self.values @ self._solved + size + len(self.values) * log(2 * pi)))


def covariances(left: Floats, right: Floats, smooth: Smoothness) -> Floats:
    """Matern covariance of order 3/2 between two sets of points, [len(left), len(right)]."""
    apart: Any = left[:, None, :] - right[None, :, :]
    distance = np.sqrt(3.0 * np.sum(apart**2, axis=-1)) / smooth.length
    covariance: Floats = smooth.amplitude**2 * (1.0 + distance) * np.exp(-distance)
    return covariance


LENGTHS, AMPLITUDES = (0.5, 1.0, 2.0, 3.0, 5.0, 8.0), (0.05, 0.1, 0.2, 0.4)
NOISES = (0.01, 0.03, 0.06, 0.1)


def _choices() -> Iterator[Smoothness]:
    for length, amplitude, noise in product(LENGTHS, AMPLITUDES, NOISES):
        yield Smoothness(length=length, amplitude=amplitude, noise=noise)


def likeliest(points: Floats, values: Floats) -> Smoothness:
    """The smoothness under which the values are likeliest, from a coarse grid."""
    return max(
        _choices(),
        key=lambda smooth: Field(points=points, values=values, smoothness=smooth).likelihood(),
    )


APART = 2.0  # octaves added to the distance of kernels that differ in variant or direction
NEAR = 1.5  # a size outside the measured range by at most this factor counts as inside

Modelled = Callable[[Kernel], float]


class KernelFamily(NamedTuple):
    """A class of similar kernels: its measured kernels predict the others."""

    kind: KernelClass
    precision: str
    generation: str = ""


class ProfiledTime(NamedTuple):
    """Seconds of a kernel. `outside` names a size outside of the measured range, and the range; it
    is empty where all sizes lie inside."""

    seconds: float
    outside: str = ""


class Calibrated:
    """Kernel times from a device's profile; `modelled` gives times from its (fitted) rates."""

    def __init__(self, profile: Profile, modelled: Modelled, generation: str = "") -> None:
        """`generation` names the fused attention that runs; by default each kernel's name does, as
        in a profile's own measurements."""
        self.modelled, self.generation = modelled, generation
        self._exact = {
            (family(measured.kernel), features(measured.kernel)): measured.seconds
            for kind in _SHAPED
            for measured in profile.fitted(kind)
        }  # fmt: skip
        self._curves = profile.curves()
        self._ranges: dict[KernelFamily, list[tuple[float, float]]] = {}
        self._groups: dict[KernelFamily, list[Measurement]] = {}
        self._fields: dict[KernelFamily, Field] = {}
        self._smoothness = profile.origin.smoothness
        for kind in _SHAPED:
            for key, group in _by_family(profile.fitted(kind)).items():
                points = np.array([features(measured.kernel) for measured in group])
                low, high = points.min(axis=0).tolist(), points.max(axis=0).tolist()
                self._ranges[key] = list(zip(low, high, strict=True))
                self._groups[key] = group

    def _field(self, key: KernelFamily) -> Field | None:
        """The correction of the model for a family. It is made when first needed, because the model
        may not know the fused attention of a stack."""
        smooth = self._smoothness.get(key.kind)
        if smooth is not None and key not in self._fields:
            group = self._groups[key]
            points = np.array([features(measured.kernel) for measured in group])
            values = ratios(group, self.modelled)
            self._fields[key] = Field(points=points, values=values, smoothness=smooth)
        return self._fields.get(key)

    def __call__(self, kernel: Kernel) -> ProfiledTime | None:
        """The time of a kernel, or None where nothing of its class and precision was measured."""
        if isinstance(kernel, MemoryBound):
            return self._memory_bound(kernel)
        key = family(kernel, self.generation)
        if key not in self._ranges:
            return None
        exact = self._exact.get((key, features(kernel)))
        if exact is not None:
            return ProfiledTime(exact)
        seconds = self.modelled(kernel)
        field = self._field(key)
        if field is not None:
            seconds *= exp(field.at(features(kernel)))
        return ProfiledTime(seconds, self._outside(kernel, self._ranges[key]))

    def _outside(self, kernel: Gemm | Attention, ranges: list[tuple[float, float]]) -> str:
        for name, x, (low, high) in zip(axes(kernel), features(kernel), ranges, strict=True):
            if name and not low - log2(NEAR) <= x <= high + log2(NEAR):
                return f"{name} = {2**x:,.0f}, measured from {2**low:,.0f} to {2**high:,.0f}"
        return ""

    def _memory_bound(self, kernel: MemoryBound) -> ProfiledTime | None:
        kind = self._kind(kernel)
        if kind is None:
            return None
        # The curve of a kind holds for the whole call, the curve of `ANY` for a single launch.
        launches = kernel.launches if kind == ANY else 1
        curve, size = self._curves[kind], kernel.bytes / launches
        return ProfiledTime(launches * curve(size), _beyond(curve, size))

    def _kind(self, kernel: MemoryBound) -> str | None:
        """The measured kind of a kernel: its name or the last words of its name (first with
        "dropout" in front where it draws random numbers). Otherwise `ANY` if it was measured."""
        words = kernel.name.split(" ")
        for ending in (" ".join(words[first:]) for first in range(len(words))):
            for name in (f"dropout {ending}",) * (kernel.randoms > 0) + (ending,):
                if name in self._curves:
                    return name
        return ANY if ANY in self._curves else None


_SHAPED: tuple[KernelClass, ...] = ("gemm", "attention")


def _beyond(curve: Curve, size: float) -> str:
    low, high = curve.range
    if low / NEAR <= size <= high * NEAR:
        return ""
    return f"bytes = {size:,.0f}, measured from {low:,.0f} to {high:,.0f}"


def ratios(group: Iterable[Measurement], modelled: Modelled) -> Floats:
    """log(measured / modelled) of each measurement."""
    return np.array([log(measured.seconds / modelled(measured.kernel)) for measured in group])


def features(kernel: Kernel) -> tuple[float, ...]:
    """A kernel's point in a `Field`: log2 of its sizes, and marks that set variants apart."""
    sizes: tuple[float, ...]
    if isinstance(kernel, Gemm):
        which = variant(kernel)
        sizes = (kernel.m, kernel.n, kernel.k, kernel.batch)
        marks = (which == "dgrad", which == "wgrad", kernel.accumulate)
    elif isinstance(kernel, Attention):
        head = (kernel.head + kernel.values) / 2
        sizes = (kernel.q, kernel.span, kernel.batch * kernel.heads, head)
        marks = (kernel.causal, kernel.backward, kernel.kv_heads < kernel.heads)
    else:
        raise TypeError(f"{kernel} has no shape")
    return (*map(log2, sizes), *(APART * mark for mark in marks))


def axes(kernel: Gemm | Attention) -> tuple[str, ...]:
    """The name of each feature that is a size; an empty text for other features."""
    sizes = ("m", "n", "k", "batch")
    if isinstance(kernel, Attention):
        sizes = ("queries", "keys", "batch x heads", "head")
    return (*sizes, "", "", "")


def family(kernel: Kernel, generation: str = "") -> KernelFamily:
    """The family of a kernel; a given `generation` of attention replaces the kernel's."""
    if isinstance(kernel, Gemm):
        return KernelFamily("gemm", kernel.precision)
    assert isinstance(kernel, Attention)
    return KernelFamily("attention", kernel.precision, generation or kernel.name)


def _by_family(measurements: Iterable[Measurement]) -> dict[KernelFamily, list[Measurement]]:
    families: dict[KernelFamily, list[Measurement]] = {}
    for measured in measurements:
        families.setdefault(family(measured.kernel), []).append(measured)
    return families
