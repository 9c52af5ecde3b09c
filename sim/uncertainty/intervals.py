"""How sure a step time is: the errors that the model has shown on measured runs, as an interval.

Errors are logarithms of measured / predicted. Two sources describe them:

- *validated*: the location and the scale of errors over measured runs that are alike, and how much
  other runs differ from them (`sim.uncertainty.evidence`). They contain every error of these
  predictions: of kernels, of collectives, of the host, and of effects that the model leaves out.
- *kernels*: the errors of single kernels and collectives on shapes kept out of their fits, by class
  of work (`Sigmas`: from a profile's residuals, or the packaged defaults). Each class contributes
  to the error of the step by its share of the critical path.

The errors of kernels are a part of the validated errors, and must count once. So the default
sigmas' contribution to this step is taken out of the spread of measured runs, and the contribution
of the device's profile is added: scale^2 = spread^2 - default^2 + kernels^2, but at least the
smaller of spread^2 and kernels^2. Without a profile, this is the spread of the measured runs. A
profile narrows it if its kernels are more accurate than the defaults, and widens it otherwise.

A prediction is the simulated step, to which all accounts add up; measured runs do not change it. A
known bias is not an uncertainty: the *expected* measured step is the simulated step times
exp(bias), and the interval lies around this expected step.
"""

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from math import exp, hypot, sqrt
from typing import Any

from sim.config.dataclass import dataclass
from sim.uncertainty import student

LEVEL = 0.9  # the probability of every interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Sigmas:
    """Standard deviations of log(measured / predicted) by class of work.

    All shapes of a class are assumed to be off by the same factor; classes are independent of one
    another. The defaults are median absolute errors / 0.6745 of the analytic models on measurements
    kept out of their fits, as a root mean square over tables: of
    `sim.analysis.calibration.fitting`, `published_kernels` on A100 and B200 (products 1.2 and
    6.7 %, attention 2.6 and 13.3 %) and `published_nccl` on 13 tables (0.7 to 27 %). Memory-bound
    kernels and the host have no such table; their sigmas are assumed.
    """

    gemm: float = 0.07
    attention: float = 0.14
    stream: float = 0.10
    collective: float = 0.13
    host: float = 0.25

    def of_step(self, shares: Mapping[str, float]) -> float:
        """Return the standard deviation of log(step time), to first order in the classes' shares.

        >>> round(Sigmas(gemm=0.03, stream=0.1).of_step({"gemm": 0.8, "stream": 0.2}), 4)
        0.0312
        """
        return hypot(*(getattr(self, kind) * share for kind, share in shares.items()))

    def replaced(self, measured: Mapping[str, float]) -> "Sigmas":
        """Return the sigmas of a profile; classes that the profile lacks keep their default."""
        common = {f.name for f in fields(self)} & measured.keys()
        return replace(self, **{kind: measured[kind] for kind in common})


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """The contribution of errors of kernels and collectives to one step: the standard deviation of
    its logarithm by a profile's sigmas (`sigma`) and by the default sigmas (`usual`). `shares` are
    the shares of work (`work_shares`) from which both are computed."""

    sigma: float
    usual: float
    shares: Mapping[str, float]

    @classmethod
    def of(cls, sigmas: Sigmas, shares: Mapping[str, float]) -> "Kernels":
        return cls(sigma=sigmas.of_step(shares), usual=Sigmas().of_step(shares), shares=shares)

    def corrected(self, variance: float) -> float:
        """Return a variance that contains the default errors, with these errors in their place."""
        return max(variance - self.usual**2 + self.sigma**2, min(variance, self.sigma**2))


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorLaw:
    """The law of a job's log(measured / predicted): Student's t of location `bias` and `scale`.

    `apart` is the scale of the part that layouts of one job do not share. `basis` names the
    measured runs behind the law. `seen` is the location over runs like the job (None without such
    runs); `bias` is `seen`, shrunk towards the location of other runs if there are few runs.
    """

    bias: float
    scale: float
    apart: float
    basis: str
    seen: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """The measured step time would lie between `low` and `high` (s) with probability `level`. It is
    as likely to be above as below `expected`.

    The errors of `kernels` contribute to the interval if a profile is used.
    """

    level: float
    low: float
    expected: float
    high: float
    errors: ErrorLaw
    kernels: Kernels | None = None

    @property
    def parts(self) -> dict[str, Any]:
        """The interval without its times, as plain data."""
        plain = {"level": self.level, **asdict(self.errors)}
        return plain | ({"kernels": asdict(self.kernels)} if self.kernels else {})


def interval(
    step: float, errors: ErrorLaw, kernels: Kernels | None = None, level: float = LEVEL
) -> Interval:
    """Return the interval of a predicted step time (s)."""
    if kernels:
        errors = replace(errors, scale=sqrt(kernels.corrected(errors.scale**2)))
    reach = student.quantile((1.0 + level) / 2.0) * errors.scale
    low, expected, high = (step * exp(errors.bias + off) for off in (-reach, 0.0, reach))
    return Interval(
        level=level, low=low, expected=expected, high=high, errors=errors, kernels=kernels
    )
