"""Laws of slowdown: distributions of the factor by which something takes longer than usual.

The same laws describe all that varies: the kernels of a rank (`[jitter]`), the steps of a worker
and the time of a link (`[[sharing.straggler]]`). A law knows its mean and draws factors [steps,
members]; the factor 1.2 means 20 % more time. Members are independent of each other (except with
`Pauses.together`). Whether steps of a member are independent depends on the law.

>>> from sim.variability.laws import generator
>>> factors = Lognormal(sigma=0.02).draw(generator(7, "kernels"), 1000, 8)
>>> factors.shape, round(float(factors.mean()), 2)
((1000, 8), 1.0)
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import field
from math import exp, inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from sim.config.dataclass import dataclass
from sim.config.schema import Tagged
from sim.config.units import Ge, Gt, Le

if TYPE_CHECKING:
    from numpy.random import Generator  # takes long to load, and few jobs draw


def generator(seed: int, cause: str, *numbers: int) -> "Generator":
    """The random generator of a cause, or of a part of it with its own `numbers` (such as rank 5).

    Switching another cause on does not change the draws of this cause.

    >>> pauses = generator(1, "pauses").random()
    >>> pauses == generator(1, "kernels").random(), pauses == generator(1, "pauses").random()
    (False, True)
    """
    return np.random.default_rng(np.random.SeedSequence([seed, crc32(cause.encode()), *numbers]))


Floats = NDArray[np.float64]
Positive = Annotated[float, Gt(0)]
NonNegative = Annotated[float, Ge(0)]
Steps = Annotated[float, Ge(1)]


class SlowdownLaw(ABC):
    """A distribution of factors; `kind` is its name in files."""

    __slots__ = ()

    @property
    @abstractmethod
    def mean(self) -> float: ...

    @abstractmethod
    def blocks(self, rng: "Generator", sizes: Iterable[int], members: int) -> Iterator[Floats]:
        """Yield factors block by block [size, members]. The factors of a run do not depend on how
        the run is divided into blocks."""

    def draw(self, rng: "Generator", steps: int, members: int = 1) -> Floats:
        """Draw factors [steps, members]."""
        return next(self.blocks(rng, (steps,), members))


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant(SlowdownLaw):
    """The factor is always the same."""

    kind: Literal["constant"] = "constant"
    factor: Positive

    @property
    def mean(self) -> float:
        return self.factor

    def blocks(self, rng: "Generator", sizes: Iterable[int], members: int) -> Iterator[Floats]:
        return (np.full((steps, members), self.factor) for steps in sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lognormal(SlowdownLaw):
    """Factors are exp(N(0, sigma^2)); their median is 1, their mean exp(sigma^2/2)."""

    kind: Literal["lognormal"] = "lognormal"
    sigma: NonNegative

    @property
    def mean(self) -> float:
        return exp(self.sigma**2 / 2.0)

    def blocks(self, rng: "Generator", sizes: Iterable[int], members: int) -> Iterator[Floats]:
        for steps in sizes:
            factors = rng.standard_normal((steps, members))
            factors *= self.sigma
            yield np.exp(factors, out=factors)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShiftedExponential(SlowdownLaw):
    """Factors are 1 + an exponential variable with mean `extra` (Lee et al. 2018)."""

    kind: Literal["shifted-exponential"] = "shifted-exponential"
    extra: NonNegative

    @property
    def mean(self) -> float:
        return 1.0 + self.extra

    def blocks(self, rng: "Generator", sizes: Iterable[int], members: int) -> Iterator[Floats]:
        for steps in sizes:
            yield 1.0 + self.extra * rng.standard_exponential((steps, members))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pareto(SlowdownLaw):
    """Factors are heavy-tailed: P(factor > x) = x^-alpha for x >= 1.

    The mean is infinite for alpha <= 1, the variance for alpha <= 2.
    """

    kind: Literal["pareto"] = "pareto"
    alpha: Positive

    @property
    def mean(self) -> float:
        return self.alpha / (self.alpha - 1.0) if self.alpha > 1.0 else inf

    def blocks(self, rng: "Generator", sizes: Iterable[int], members: int) -> Iterator[Floats]:
        for steps in sizes:
            yield 1.0 + rng.pareto(self.alpha, (steps, members))


@dataclass(frozen=True, slots=True, kw_only=True)
class OnOff(SlowdownLaw):
    """Members are slow by `factor` for a while, then healthy for a while (Gilbert 1960).

    Slow spells last `slow` steps on average and healthy spells `well` steps; both lengths are
    geometrically distributed.
    """

    kind: Literal["on-off"] = "on-off"
    factor: Positive
    slow: Steps
    well: Steps

    @property
    def share(self) -> float:
        """The share of steps that are slow."""
        return self.slow / (self.slow + self.well)

    @property
    def mean(self) -> float:
        return 1.0 + self.share * (self.factor - 1.0)

    def blocks(self, rng: "Generator", sizes: Iterable[int], members: int) -> Iterator[Floats]:
        now: NDArray[np.bool_] | None = None
        for steps in sizes:
            is_slow = np.empty((steps, members), dtype=bool)
            for step, chance in enumerate(rng.random((steps, members))):
                if now is None:
                    now = chance < self.share
                else:
                    now = np.where(now, chance >= 1.0 / self.slow, chance < 1.0 / self.well)
                is_slow[step] = now
            yield np.where(is_slow, self.factor, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pauses(SlowdownLaw):
    """Every `every`th step takes `factor` times as long (garbage collection, a checkpoint).

    Each member has its own steps with pauses, unless all members pause `together`.
    """

    kind: Literal["pauses"] = "pauses"
    factor: Positive
    every: Annotated[int, Ge(1)]
    together: bool = False

    @property
    def mean(self) -> float:
        return 1.0 + (self.factor - 1.0) / self.every

    def blocks(self, rng: "Generator", sizes: Iterable[int], members: int) -> Iterator[Floats]:
        phase = rng.integers(self.every, size=1 if self.together else members)
        for steps in sizes:
            pausing = (np.arange(steps)[:, None] + phase) % self.every == 0
            yield np.broadcast_to(np.where(pausing, self.factor, 1.0), (steps, members)).copy()
            phase = (phase + steps) % self.every


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace(SlowdownLaw):
    """Recorded factors in order. Each member begins at a random place and starts again at the end.

    `sim.variability.recorded` reads the factors from `file`. Raises `InputError` if the file has
    holes.
    """

    kind: Literal["trace"] = "trace"
    file: str
    factors: tuple[float, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        from sim.variability import recorded  # few laws read a file

        object.__setattr__(self, "factors", recorded.factors(Path(self.file)))

    @property
    def mean(self) -> float:
        return float(np.mean(self.factors))

    def blocks(self, rng: "Generator", sizes: Iterable[int], members: int) -> Iterator[Floats]:
        first, factors = rng.integers(len(self.factors), size=members), np.array(self.factors)
        for steps in sizes:
            yield factors[(np.arange(steps)[:, None] + first) % len(factors)]
            first = (first + steps) % len(factors)


LAWS: tuple[type[SlowdownLaw], ...] = (
    Constant, Lognormal, ShiftedExponential, Pareto, OnOff, Pauses, Trace,
)  # fmt: skip


_DEFAULT_SIGMA = 0.02  # of the jitter that is assumed without causes


@dataclass(frozen=True, slots=True, kw_only=True)
class JitterCause:
    """A reason why ranks are slow, with the law of the factor on their kernels' time.

    `each` says which ranks share a draw: one "rank", or all ranks of a node, a stage or a replica.
    `lasts` says whether a draw holds for one step or for the whole job. `share` is the fraction of
    these ranks or groups that the cause affects, chosen once per job. Laws count time in steps.
    """

    name: str
    law: Annotated[SlowdownLaw, Tagged("kind", lambda: LAWS, inline=True, default="lognormal")]
    each: Literal["rank", "node", "stage", "replica"] = "rank"
    lasts: Literal["step", "job"] = "step"
    share: Annotated[float, Gt(0), Le(1)] = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Jitter:
    """All causes of jitter, and the seed of their generators. Each cause has its own generator,
    which depends on its name."""

    seed: Annotated[int, Ge(0)] = 0
    cause: tuple[JitterCause, ...] = ()

    def __post_init__(self) -> None:
        names = [cause.name for cause in self.cause]
        if len(set(names)) < len(names):
            raise ValueError("two causes have one name; give each cause its own name")

    @property
    def assumed(self) -> bool:
        """Whether the file names no cause; a small lognormal jitter is then assumed."""
        return not self.cause

    @property
    def causes(self) -> tuple[JitterCause, ...]:
        return self.cause or (JitterCause(name="kernels", law=Lognormal(sigma=_DEFAULT_SIGMA)),)
