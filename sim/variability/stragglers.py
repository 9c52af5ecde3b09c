"""Stragglers: how many times as long as usual a rank's work takes, as distributions over steps.

Each distribution knows its mean and variance in closed form and draws factors [steps, members]:
1.0 is the usual pace, 1.2 a fifth slower. Members are independent of each other; whether a member's
steps are, the distribution says. One generator a cause is spawned from one seed (`generators`),
so that switching a cause on does not reshuffle another.

>>> factors = Lognormal(sigma=0.02).draw(generators(7, "kernels")["kernels"], 1000, 8)
>>> factors.shape, round(float(factors.mean()), 2)
((1000, 8), 1.0)
"""

from dataclasses import dataclass
from itertools import pairwise
from math import exp, inf
from pathlib import Path
from typing import Protocol
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from sim.config.errors import InputError

Floats = NDArray[np.float64]


class Straggling(Protocol):
    """What every distribution offers."""

    @property
    def mean(self) -> float: ...

    @property
    def variance(self) -> float: ...

    def draw(self, rng: np.random.Generator, steps: int, members: int = 1) -> Floats:
        """Factors [steps, members]."""
        ...


def generators(seed: int, *causes: str) -> dict[str, np.random.Generator]:
    """One generator a cause: what it draws depends on the seed and its own name alone.

    >>> one = generators(1, "kernels")["kernels"].random()
    >>> one == generators(1, "pauses", "kernels")["kernels"].random()
    True
    """
    return {
        cause: np.random.default_rng(np.random.SeedSequence([seed, crc32(cause.encode())]))
        for cause in causes
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """Always the same factor."""

    factor: float = 1.0

    @property
    def mean(self) -> float:
        return self.factor

    @property
    def variance(self) -> float:
        return 0.0

    def draw(self, rng: np.random.Generator, steps: int, members: int = 1) -> Floats:
        return np.full((steps, members), self.factor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lognormal:
    """exp(N(0, sigma^2)) times `median`: mean median exp(sigma^2/2)."""

    sigma: float
    median: float = 1.0

    @property
    def mean(self) -> float:
        return self.median * exp(self.sigma**2 / 2.0)

    @property
    def variance(self) -> float:
        return self.mean**2 * (exp(self.sigma**2) - 1.0)

    def draw(self, rng: np.random.Generator, steps: int, members: int = 1) -> Floats:
        found = rng.standard_normal((steps, members))
        found *= self.sigma
        np.exp(found, out=found)
        found *= self.median
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ShiftedExponential:
    """At least `shift`, and exponentially more: shift + Exp(`extra`) (Lee et al. 2018, eq. 2)."""

    extra: float
    shift: float = 1.0

    @property
    def mean(self) -> float:
        return self.shift + self.extra

    @property
    def variance(self) -> float:
        return self.extra**2

    def draw(self, rng: np.random.Generator, steps: int, members: int = 1) -> Floats:
        return self.shift + self.extra * rng.standard_exponential((steps, members))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pareto:
    """Heavy-tailed: P(factor > x) = (scale/x)^alpha from `scale` on.

    The mean is infinite for alpha <= 1, the variance for alpha <= 2.
    """

    alpha: float
    scale: float = 1.0

    @property
    def mean(self) -> float:
        return self.scale * self.alpha / (self.alpha - 1.0) if self.alpha > 1.0 else inf

    @property
    def variance(self) -> float:
        a = self.alpha
        return self.scale**2 * a / ((a - 1.0) ** 2 * (a - 2.0)) if a > 2.0 else inf

    def draw(self, rng: np.random.Generator, steps: int, members: int = 1) -> Floats:
        return self.scale * (1.0 + rng.pareto(self.alpha, (steps, members)))


@dataclass(frozen=True, slots=True, kw_only=True)
class OnOff:
    """Slow by `factor` for a while, then well for a while (Gilbert 1960).

    Slow spells last `slow` steps in the mean and healthy ones `well`, both geometric.
    """

    factor: float
    slow: float
    well: float

    @property
    def share(self) -> float:
        """Of steps that are slow."""
        return self.slow / (self.slow + self.well)

    @property
    def mean(self) -> float:
        return 1.0 + self.share * (self.factor - 1.0)

    @property
    def variance(self) -> float:
        return self.share * (1.0 - self.share) * (self.factor - 1.0) ** 2

    def draw(self, rng: np.random.Generator, steps: int, members: int = 1) -> Floats:
        chance = rng.random((steps, members))
        is_slow = np.empty((steps, members), dtype=bool)
        now = chance[0] < self.share if steps else np.empty(members, dtype=bool)
        for step in range(steps):
            if step:
                now = np.where(now, chance[step] >= 1.0 / self.slow, chance[step] < 1.0 / self.well)
            is_slow[step] = now
        return np.where(is_slow, self.factor, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pauses:
    """Every `every`th step takes `factor` times as long (garbage collection, a checkpoint).

    Members pause at steps of their own unless `together`.
    """

    factor: float
    every: int
    together: bool = False

    @property
    def mean(self) -> float:
        return 1.0 + (self.factor - 1.0) / self.every

    @property
    def variance(self) -> float:
        share = 1.0 / self.every
        return share * (1.0 - share) * (self.factor - 1.0) ** 2

    def draw(self, rng: np.random.Generator, steps: int, members: int = 1) -> Floats:
        phase = rng.integers(self.every, size=1 if self.together else members)
        pausing = (np.arange(steps)[:, None] + phase) % self.every == 0
        return np.broadcast_to(np.where(pausing, self.factor, 1.0), (steps, members)).copy()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Recorded factors in their order; each member begins at a place of its own and goes round."""

    factors: tuple[float, ...]

    @property
    def mean(self) -> float:
        return float(np.mean(self.factors))

    @property
    def variance(self) -> float:
        return float(np.var(self.factors))

    def draw(self, rng: np.random.Generator, steps: int, members: int = 1) -> Floats:
        first = rng.integers(len(self.factors), size=members)
        places = (np.arange(steps)[:, None] + first) % len(self.factors)
        found: Floats = np.array(self.factors)[places]
        return found


def recorded(path: Path) -> Trace:
    """A trace from a CSV file: the last column holds step times (s), a first one may number the
    steps; a header and comments are skipped.

    Factors are step times over their median. Raises `InputError` for a missing file, an empty one
    or one with holes: a line or a cell without a time, a number that is left out.
    """
    where = f"trace {path}"
    if not path.is_file():
        raise InputError(where, "no such file", "name a CSV of step times")
    text = path.read_text(encoding="utf-8").rstrip()
    lines = [line for line in enumerate(text.splitlines(), 1) if not line[1].startswith("#")]
    if lines and _time(lines[0][1]) is None and lines[0][1].split(",")[-1].strip():
        del lines[0]  # a header
    times = [_step_time(line, number, where) for number, line in lines]
    if not times:
        raise InputError(where, "holds no step times", "one a line, in seconds")
    _check_numbers(lines, where)
    return Trace(factors=tuple((np.array(times) / np.median(times)).tolist()))


def _time(line: str) -> float | None:
    try:
        return float(line.split(",")[-1])
    except ValueError:
        return None


def _step_time(line: str, number: int, where: str) -> float:
    found = _time(line)
    if found is None:
        what = f"line {number} holds no step time: {line.strip()!r}"
        raise InputError(where, what, "fill the hole or leave the line out")
    if not 0.0 < found < inf:
        raise InputError(where, f"line {number}: {found} is no step time", "mend it")
    return found


def _check_numbers(lines: list[tuple[int, str]], where: str) -> None:
    """Steps that are numbered must be numbered without holes."""
    numbers = [line.split(",")[0].strip() for _, line in lines if "," in line]
    if not all(number.isdecimal() for number in numbers):
        return
    for before, after in pairwise(map(int, numbers)):
        if after != before + 1:
            what = f"step {before} is followed by step {after}"
            raise InputError(where, what, "fill the hole or leave the numbers out")
