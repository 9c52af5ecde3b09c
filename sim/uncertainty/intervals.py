"""How sure a step time is: the errors that the model has shown on measured runs, as an interval.

Errors are logarithms of measured / predicted. Two things are known of them:

- *validated*: per stack and device, the median and the spread over measured runs
  (`sim.uncertainty.evidence`). They contain every error of those predictions: of kernels, of
  collectives, of the host, and of what the model leaves out.
- *kernels*: how far the times of single kernels and collectives are off on shapes kept out of
  their fits, by class of work (`Sigmas`: from a profile's residuals, or the packaged defaults),
  carried to the step by the share of its critical path that each class has.

The second is a part of the first. So that it counts once, what the default sigmas would contribute
to this very step is taken out of the spread of the measured runs, and what the device's profile
says is put in: variance = spread^2 - default^2 + kernels^2, though never less than the smaller of
spread^2 and kernels^2. Without a profile this is the spread of the measured runs; with a profile
the interval is narrower if its kernels are more accurate than the defaults, and wider otherwise.

The interval is centred on the prediction times the median ratio of the measured runs, because a
known bias is not an uncertainty; it is widened to contain the prediction if the bias is so large
that it would lie outside.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from math import exp, hypot, sqrt
from statistics import NormalDist
from typing import Any

LEVEL = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Sigmas:
    """Standard deviations of log(measured / predicted) by class of work.

    All shapes of one class are assumed to be off by the same factor, the classes independently of
    one another. The defaults are median absolute errors / 0.6745 of the analytic models on what was
    kept out of their fits, root mean square over tables: of `sim.calibration.fitting`,
    `published_kernels` on A100 and B200 (products 1.2 and 6.7 %, attention 2.6 and 13.3 %) and
    `published_nccl` on 13 tables (0.7 to 27 %). Memory-bound kernels and the host have no such
    table; theirs are assumed.
    """

    gemm: float = 0.07
    attention: float = 0.14
    stream: float = 0.10
    collective: float = 0.13
    host: float = 0.25

    def of_step(self, shares: Mapping[str, float]) -> float:
        """The standard deviation of log(step time), to first order in the classes' shares.

        >>> round(Sigmas(gemm=0.03, stream=0.1).of_step({"gemm": 0.8, "stream": 0.2}), 4)
        0.0312
        """
        return hypot(*(getattr(self, kind) * share for kind, share in shares.items()))

    def replaced(self, measured: Mapping[str, float]) -> "Sigmas":
        """With what a profile measured; classes that it lacks keep their default."""
        common = {f.name for f in fields(self)} & measured.keys()
        return replace(self, **{kind: measured[kind] for kind in common})


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """What errors of kernels and collectives contribute to one step: the standard deviation of its
    logarithm by a profile's sigmas (`sigma`) and by the default ones (`usual`), and the shares of
    work (`work_shares`) that carried them."""

    sigma: float
    usual: float
    shares: Mapping[str, float]

    @classmethod
    def of(cls, sigmas: Sigmas, shares: Mapping[str, float]) -> "Kernels":
        return cls(sigma=sigmas.of_step(shares), usual=Sigmas().of_step(shares), shares=shares)

    def corrected(self, variance: float) -> float:
        """A variance that contains the default errors, with these errors in their place."""
        return max(variance - self.usual**2 + self.sigma**2, min(variance, self.sigma**2))


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorDistribution:
    """Of log(measured / predicted) of a job: Student's t with a location (`bias`), a `variance` and
    degrees of `freedom`; `basis` says on which measured runs it rests."""

    bias: float
    variance: float
    freedom: float
    basis: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Where the measured step time would lie with probability `level`: `low` to `high`, in s.

    Of log(measured / predicted), `bias` is the median over measured runs and `sigma` the expected
    standard deviation, to which `kernels` contribute if a profile is used; `basis` says on which
    measured runs all of it rests.
    """

    level: float
    low: float
    high: float
    bias: float
    sigma: float
    basis: str
    kernels: Kernels | None = None

    @property
    def parts(self) -> dict[str, Any]:
        """All but the bounds, as plain data."""
        plain = {key: getattr(self, key) for key in ("level", "bias", "sigma", "basis")}
        return plain | ({"kernels": asdict(self.kernels)} if self.kernels else {})


def interval(
    step: float, errors: ErrorDistribution, kernels: Kernels | None, level: float = LEVEL
) -> Interval:
    """The interval of a predicted step time (s)."""
    variance = kernels.corrected(errors.variance) if kernels else errors.variance
    reach = _quantile((1.0 + level) / 2.0, errors.freedom) * sqrt(variance)
    return Interval(
        level=level,
        low=step * min(exp(errors.bias - reach), 1.0),
        high=step * max(exp(errors.bias + reach), 1.0),
        bias=errors.bias,
        sigma=sqrt(variance),
        basis=errors.basis,
        kernels=kernels,
    )


def _quantile(probability: float, freedom: float) -> float:
    """Of Student's t (Cornish-Fisher, Abramowitz and Stegun 26.7.5).

    >>> round(_quantile(0.95, 10.0), 3), round(_quantile(0.95, 1e9), 3)
    (1.812, 1.645)
    """
    z = NormalDist().inv_cdf(probability)
    first = (z**3 + z) / 4.0
    second = (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / 96.0
    third = (3.0 * z**7 + 19.0 * z**5 + 17.0 * z**3 - 15.0 * z) / 384.0
    return z + first / freedom + second / freedom**2 + third / freedom**3
