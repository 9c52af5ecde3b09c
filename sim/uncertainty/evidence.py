"""What measured runs show of the errors of predictions, by stack and device.

`topologies/validated/*.toml`, written by `sim validate TABLES --spread FILE`, keeps the errors of
each table of measured runs; packaged files and the user's own count alike.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean, median, variance
from typing import Annotated

from annotated_types import Ge, Gt

from sim.config import catalog
from sim.uncertainty.intervals import LEVEL, ErrorDistribution, Interval, Kernels, interval

FOLDER = "topologies/validated"
# All assumed. Coverage (`sim validate TABLES --coverage`, all rows and mean of tables) stays within
# 0.81 to 0.90 with 1 to 10 for the first and 1 to 8 for the second.
_ROWS_OF_USUAL = 2.0  # the usual spread counts as much as so many rows of one stack and device
_ROWS_ALIKE = 4.0  # rows of one campaign share its conditions: so many show a bias as well as one
_UNKNOWN = 0.2  # the usual spread if nothing at all was measured


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
class Evidence:
    """The errors of all validated runs, in three levels: rows, devices of a stack, stacks.

    A stack without measured runs is taken as a draw from all stacks, and a device without measured
    runs of its stack as a draw from the devices of stacks that were measured on several; each adds
    the variance between such medians to that of rows within one.
    """

    spreads: tuple[Spread, ...]

    @property
    def usual(self) -> float:
        """The median over all spreads of their sigma."""
        return median([spread.sigma for spread in self.spreads]) if self.spreads else _UNKNOWN

    @property
    def between_devices(self) -> float:
        """Variance of the medians of one stack's devices, pooled over stacks."""
        groups = self._by_stack().values()
        deviations = [s.median - _centre(group) for group in groups for s in group]
        freedom = len(deviations) - len(groups)
        return sum(d * d for d in deviations) / freedom if freedom > 0 else 0.0

    @property
    def between_stacks(self) -> float:
        """Variance of the stacks' centres."""
        centres = [_centre(group) for group in self._by_stack().values()]
        return variance(centres) if len(centres) > 1 else 0.0

    def _by_stack(self) -> dict[str, list[Spread]]:
        groups: dict[str, list[Spread]] = {}
        for spread in self.spreads:
            groups.setdefault(spread.stack, []).append(spread)
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

        >>> spread = Spread(table="t", stack="mine", device="A100", rows=50, median=0.0, sigma=0.03)
        >>> wide = Evidence(spreads=(spread,)).interval(10.0, stack="mine", device="A100")
        >>> round(wide.low, 2), round(wide.high, 2), wide.basis
        (9.49, 10.54, '50 measured runs of mine on A100')
        """
        return interval(step, self.errors(stack, device), kernels, level)

    def errors(self, stack: str, device: str) -> ErrorDistribution:
        """What the validated runs imply for a job of this stack on this device."""
        groups = self._by_stack()
        if stack not in groups:
            return self._of_other_stacks(list(groups.values()))
        of_device = [spread for spread in groups[stack] if spread.device == device]
        if not of_device:
            return self._of_other_devices(groups[stack])
        return self._of_same(of_device, stack, device)

    def _of_other_stacks(self, groups: Sequence[Sequence[Spread]]) -> ErrorDistribution:
        count = len(groups)
        between = self.between_stacks * (1.0 + 1.0 / count) if count else 0.0
        return ErrorDistribution(
            bias=fmean(map(_centre, groups)) if groups else 0.0,
            variance=between + self.usual**2,
            freedom=max(count - 1.0, 1.0),
            basis=f"{_rows(self.spreads)} measured runs of {count} other stacks",
        )

    def _of_other_devices(self, spreads: Sequence[Spread]) -> ErrorDistribution:
        between = self.between_devices * (1.0 + 1.0 / len(spreads))
        return ErrorDistribution(
            bias=_centre(spreads),
            variance=between + fmean(map(self._within, spreads)),
            freedom=float(max(len(self.spreads) - 1, 1)),
            basis=f"{_rows(spreads)} measured runs of {spreads[0].stack} on other devices",
        )

    def _of_same(self, spreads: Sequence[Spread], stack: str, device: str) -> ErrorDistribution:
        rows = _rows(spreads)
        bias = sum(s.rows * s.median for s in spreads) / rows
        within = sum(s.rows * (self._within(s) + (s.median - bias) ** 2) for s in spreads) / rows
        return ErrorDistribution(
            bias=bias,
            variance=within * (1.0 + _ROWS_ALIKE / rows),
            freedom=rows + _ROWS_OF_USUAL - 1.0,
            basis=f"{rows} measured run{'s' * (rows > 1)} of {stack} on {device}",
        )

    def _within(self, spread: Spread) -> float:
        """Variance of rows: as measured, but closer to the usual one the fewer the rows."""
        weighted = spread.rows * spread.sigma**2 + _ROWS_OF_USUAL * self.usual**2
        return weighted / (spread.rows + _ROWS_OF_USUAL)


def _centre(spreads: Sequence[Spread]) -> float:
    return fmean(spread.median for spread in spreads)


def _rows(spreads: Iterable[Spread]) -> int:
    return sum(spread.rows for spread in spreads)


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """The content of a file in `topologies/validated`."""

    spread: tuple[Spread, ...] = ()


@cache
def evidence() -> Evidence:
    """All validated runs: the packaged ones and the user's own."""
    files = [catalog.load(FOLDER, name, _File) for name in catalog.names(FOLDER)]
    return Evidence(spreads=tuple(spread for file in files for spread in file.spread))
