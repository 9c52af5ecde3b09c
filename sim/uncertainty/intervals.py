"""How sure a step time is: the errors that the model has shown on measured runs, as an interval.

Errors are logarithms of measured / predicted. Two things are known of them:

- *validated*: per stack and device, the median and the spread over measured runs
  (`topologies/validated/*.toml`, written by `sim validate TABLES --spread FILE`). Whatever was
  wrong in those predictions is in it: kernels, collectives, host, what the model leaves out.
- *kernels*: how far the times of single kernels and collectives are off on shapes kept out of
  their fits, by class of work (`Sigmas`: from a profile's residuals, or the packaged defaults),
  carried to the step by the share of its critical path that each class has.

The second is a part of the first. So that it counts once, what the default sigmas would contribute
to this very step is taken out of the spread that was seen, and what the device's profile says is
put in: variance = spread^2 - default^2 + kernels^2, though never less than the smaller of spread^2
and kernels^2. Without a profile this is the spread that was seen; a profile that knows its kernels
better makes it narrower, one that knows them worse wider.

The interval is centred on the prediction times the median ratio that was seen, because a bias
that is known is no uncertainty; it is widened to hold the prediction where the bias is so large
that it would lie outside.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from math import exp, hypot, sqrt
from statistics import NormalDist, fmean, median, variance
from typing import Annotated, Any

from annotated_types import Ge, Gt

from sim.config import catalog

LEVEL = 0.9
FOLDER = "topologies/validated"
# All assumed. Coverage (`sim validate TABLES --coverage`, all rows and mean of tables) stays within
# 0.81 to 0.90 with 1 to 10 for the first and 1 to 8 for the second.
_WEIGHT = 2.0  # rows that the usual spread counts for beside those of one stack and device
_ALIKE = 4.0  # rows of one campaign share its conditions: so many tell of the bias what one would
_BLIND = 0.2  # the usual spread where nothing at all was measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Sigmas:
    """Standard deviations of log(measured / predicted) by class of work.

    All shapes of one class are taken to be wrong alike, the classes independently of one another.
    The defaults are median absolute errors / 0.6745 of the analytic models on what was kept out of
    their fits, root mean square over tables: `sim.calibration.fitting.gemm` on A100 and B200
    (products 1.2 and 6.7 %, attention 2.6 and 13.3 %), `fit_nccl` on 13 tables (0.7 to 27 %).
    Memory-bound kernels and the host have no such table; theirs are assumed.
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
        """With what a profile measured; classes that it does not know keep their default."""
        known = {f.name for f in fields(self)} & measured.keys()
        return replace(self, **{kind: measured[kind] for kind in known})


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Errors of the measured runs of one stack on one device, as in `topologies/validated`.

    `median` is of log(measured / predicted), `sigma` half its span from the 5th to the 95th
    percentile over 1.645: a few far outliers do not widen it.
    """

    table: str
    stack: str
    device: str
    topologies: tuple[str, ...] = ()
    rows: Annotated[int, Gt(0)]
    median: float
    sigma: Annotated[float, Ge(0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """What errors of kernels and collectives contribute to one step: standard deviations of its
    logarithm by a profile's sigmas and by the default ones, and the shares of work (`work_shares`)
    that they were carried by."""

    sigma: float
    usual: float
    shares: Mapping[str, float]

    @classmethod
    def of(cls, sigmas: Sigmas, shares: Mapping[str, float]) -> "Kernels":
        return cls(sigma=sigmas.of_step(shares), usual=Sigmas().of_step(shares), shares=shares)

    def put_in(self, variance: float) -> float:
        """A variance that was seen with the default errors, with these in their place."""
        return max(variance - self.usual**2 + self.sigma**2, min(variance, self.sigma**2))


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Where the measured step time would lie with probability `level`: `low` to `high`, in s.

    Of log(measured / predicted), `bias` is the median that was seen and `sigma` the standard
    deviation that is to be expected, in which `kernels` have their part where a profile is used;
    `basis` says on what runs all of it rests.
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
        found = {key: getattr(self, key) for key in ("level", "bias", "sigma", "basis")}
        return found | ({"kernels": asdict(self.kernels)} if self.kernels else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Expected:
    """What the validated runs say of a job: median and variance of its logarithmic error."""

    bias: float
    variance: float
    freedom: float
    basis: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The errors of all validated runs, in three levels: rows, devices of a stack, stacks.

    A stack that was never measured is a draw from all stacks, a device that its stack was never
    measured on a draw from the devices of stacks that were measured on several; each adds the
    variance between such medians to that of rows within one.
    """

    spreads: tuple[Spread, ...]
    usual: float = field(init=False)
    devices: float = field(init=False)
    stacks: float = field(init=False)

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "usual", median([one.sigma for one in self.spreads]) if self.spreads else _BLIND)
        groups = list(self._by_stack().values())
        inside = [one.median - _centre(group) for group in groups for one in group]
        freedom = len(inside) - len(groups)
        put(self, "devices", sum(d * d for d in inside) / freedom if freedom > 0 else 0.0)
        centres = [_centre(group) for group in groups]
        put(self, "stacks", variance(centres) if len(centres) > 1 else 0.0)

    def _by_stack(self) -> dict[str, list[Spread]]:
        groups: dict[str, list[Spread]] = {}
        for one in self.spreads:
            groups.setdefault(one.stack, []).append(one)
        return groups

    def interval(
        self,
        step: float,
        *,
        stack: str,
        device: str,
        kernels: Kernels | None = None,
        level: float = LEVEL,
    ) -> Interval:
        """The interval of a predicted step time (s).

        >>> runs = Spread(table="t", stack="mine", device="A100", rows=50, median=0.0, sigma=0.03)
        >>> found = Evidence(spreads=(runs,)).interval(10.0, stack="mine", device="A100")
        >>> round(found.low, 2), round(found.high, 2), found.basis
        (9.49, 10.54, '50 measured runs of mine on A100')
        """
        expected = self._expected(stack, device)
        variance = kernels.put_in(expected.variance) if kernels else expected.variance
        reach = _quantile((1.0 + level) / 2.0, expected.freedom) * sqrt(variance)
        return Interval(
            level=level,
            low=step * min(exp(expected.bias - reach), 1.0),
            high=step * max(exp(expected.bias + reach), 1.0),
            bias=expected.bias,
            sigma=sqrt(variance),
            basis=expected.basis,
            kernels=kernels,
        )

    def _expected(self, stack: str, device: str) -> _Expected:
        groups = self._by_stack()
        if stack not in groups:
            return self._of_any(list(groups.values()))
        same = [one for one in groups[stack] if one.device == device]
        return self._of_runs(same, stack, device) if same else self._of_stack(groups[stack])

    def _of_any(self, groups: Sequence[Sequence[Spread]]) -> _Expected:
        count = len(groups)
        between = self.stacks * (1.0 + 1.0 / count) if count else 0.0
        return _Expected(
            bias=fmean(map(_centre, groups)) if groups else 0.0,
            variance=between + self.usual**2,
            freedom=max(count - 1.0, 1.0),
            basis=f"{_rows(self.spreads)} measured runs of {count} other stacks",
        )

    def _of_stack(self, runs: Sequence[Spread]) -> _Expected:
        between = self.devices * (1.0 + 1.0 / len(runs))
        return _Expected(
            bias=_centre(runs),
            variance=between + fmean(self._within(one) for one in runs),
            freedom=float(max(len(self.spreads) - 1, 1)),
            basis=f"{_rows(runs)} measured runs of {runs[0].stack} on other devices",
        )

    def _of_runs(self, runs: Sequence[Spread], stack: str, device: str) -> _Expected:
        rows = _rows(runs)
        bias = sum(one.rows * one.median for one in runs) / rows
        within = (
            sum(one.rows * (self._within(one) + (one.median - bias) ** 2) for one in runs) / rows
        )
        return _Expected(
            bias=bias,
            variance=within * (1.0 + _ALIKE / rows),
            freedom=rows + _WEIGHT - 1.0,
            basis=f"{rows} measured run{'s' * (rows > 1)} of {stack} on {device}",
        )

    def _within(self, one: Spread) -> float:
        """Variance of rows: what was seen, drawn to the usual one where rows are few."""
        seen = one.rows * one.sigma**2 + _WEIGHT * self.usual**2
        return seen / (one.rows + _WEIGHT)


def _centre(runs: Sequence[Spread]) -> float:
    return fmean(one.median for one in runs)


def _rows(runs: Iterable[Spread]) -> int:
    return sum(one.rows for one in runs)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """The content of a file in `topologies/validated`."""

    spread: tuple[Spread, ...] = ()


@cache
def evidence() -> Evidence:
    """All validated runs that the library knows: the packaged ones and the user's own."""
    files = [catalog.load(FOLDER, name, _File) for name in catalog.names(FOLDER)]
    return Evidence(spreads=tuple(one for file in files for one in file.spread))
