"""Laws of lengths and of waiting times: constant, lognormal, a table of measured values, a mixture.

A law maps standard normal numbers to values, so correlated numbers give correlated values under any
law (a Gaussian copula). Answer j to prompt i has the normal number z_ij = sqrt(rho) z_i + sqrt(1 -
rho) e_ij. All answers to the prompt share z_i, e_ij belongs to the answer alone, and rho is the
`correlation`. z_i and e_ij are independent standard normal numbers.
"""

from abc import ABC, abstractmethod
from dataclasses import field
from functools import lru_cache
from math import exp, inf, log, sqrt
from pathlib import Path
from statistics import NormalDist
from typing import Annotated, Literal

import numpy as np

from sim.config import gate, reads
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.schema import Tagged
from sim.config.units import Ge, Gt, Le, Lt
from sim.variability.laws import Floats, generator

Positive = Annotated[float, Gt(0)]
_NORMAL = NormalDist()
_BLOCK, _DRAWS = 256, 1 << 17  # the most prompts, and answers, that are drawn at once
_LEAST = 1e-12  # cumulative shares of draws lie from this value to 1 minus this value


class Law(ABC):
    """A distribution of non-negative values; `law` names it in files."""

    __slots__ = ()

    @abstractmethod
    def values(self, normal: Floats, cap: float = inf) -> Floats:
        """The values of standard normal numbers, each at most `cap`."""

    @abstractmethod
    def expected(self, cap: float = inf) -> float:
        """The mean of the capped values. Raises `ValueError` if the cap makes it impossible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant(Law):
    """A single value.

    >>> Constant(value=8.0).values(np.zeros(2), 5.0).tolist()
    [5.0, 5.0]
    """

    law: Literal["constant"] = "constant"
    value: Annotated[float, Ge(0)]

    def values(self, normal: Floats, cap: float = inf) -> Floats:
        return np.full(normal.shape, min(self.value, cap))

    def expected(self, cap: float = inf) -> float:
        return min(self.value, cap)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lognormal(Law):
    """X = exp(N(mu, sigma^2)), capped at c, with the mu that gives capped values the `mean`:
    E min(X, c) = exp(mu + sigma^2/2) Phi((ln c - mu - sigma^2)/sigma) + c Phi((mu - ln c)/sigma).
    Phi is the distribution function of the standard normal law.

    >>> law = Lognormal(mean=3000.0, sigma=1.0)
    >>> values = law.values(generator(1, "x").standard_normal(200_000), 4096.0)
    >>> bool(abs(values.mean() - 3000.0) < 20.0), float(values.max())
    (True, 4096.0)
    """

    law: Literal["lognormal"] = "lognormal"
    mean: Positive
    sigma: Annotated[float, Ge(0), Le(10)]

    def values(self, normal: Floats, cap: float = inf) -> Floats:
        mu = _location(self.mean, self.sigma, cap)
        return np.minimum(np.exp(mu + self.sigma * normal), cap)

    def expected(self, cap: float = inf) -> float:
        _location(self.mean, self.sigma, cap)
        return self.mean


@lru_cache
def _location(mean: float, sigma: float, cap: float) -> float:
    """The mu with which capped values have this mean. Raises `ValueError` if there is no such
    mu."""
    if mean > cap or (sigma and mean == cap):
        fault = f"a mean of {mean:g} needs values above the cap of {cap:g}"
        raise ValueError(f"{fault}; raise cap or lower mean")
    low = log(mean) - sigma**2 / 2.0
    if cap == inf or not sigma:
        return low
    high = log(cap) + 9.0 * sigma  # nearly all values exceed the cap with this mu
    for _ in range(200):
        middle = (low + high) / 2.0
        below = exp(middle + sigma**2 / 2.0) * _NORMAL.cdf((log(cap) - middle - sigma**2) / sigma)
        if below + cap * _NORMAL.cdf((middle - log(cap)) / sigma) < mean:
            low = middle
        else:
            high = middle
    return low


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured(Law):
    """Measured values, all equally likely: the `table`, or the last column of a CSV `file`.

    >>> law = Measured(table=(100.0, 200.0, 900.0))
    >>> law.expected(), law.values(np.array([-9.0, 0.0, 9.0])).tolist()
    (400.0, [100.0, 200.0, 900.0])
    """

    law: Literal["measured"] = "measured"
    table: tuple[Annotated[float, Ge(0)], ...] = ()
    file: str = ""
    ordered: tuple[float, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if bool(self.table) == bool(self.file):
            raise ValueError("give a table of measured values, or a file of them")
        values = self.table or _column(Path(self.file))
        object.__setattr__(self, "ordered", tuple(sorted(values)))

    def values(self, normal: Floats, cap: float = inf) -> Floats:
        places = (_shares(normal) * len(self.ordered)).astype(int)
        ordered = np.minimum(np.array(self.ordered), cap)
        return np.asarray(ordered[np.minimum(places, len(self.ordered) - 1)])

    def expected(self, cap: float = inf) -> float:
        return float(np.minimum(np.array(self.ordered), cap).mean())


def _column(path: Path) -> tuple[float, ...]:
    """The numbers of a file's last column below a heading. Raises `InputError`."""
    where = f"lengths {path}"
    lines = [line.split(",")[-1].strip() for line in reads.text(path, where=where).splitlines()]
    values = []
    for number, cell in enumerate(lines, 1):
        try:
            value = float(cell)
        except ValueError:
            if number == 1 or not cell or cell.startswith("#"):
                continue
            raise InputError(where, f"line {number} holds no number: {cell!r:.40}",
                             "write one number a line") from None  # fmt: skip
        if value < 0.0 or gate.fault_of(value):
            raise InputError(where, f"line {number}: {cell} is no length", "correct it")
        values.append(value)
    if not values:
        raise InputError(where, "holds no numbers", "write one number a line")
    return tuple(values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A law of a mixture, and its weight relative to the other laws."""

    weight: Positive
    of: Annotated[Law, Tagged("law", lambda: _PLAIN)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture(Law):
    """Values of several laws, each with its share. The lowest normal numbers go to the first of the
    `parts`, so correlated values tend to come from the same part.

    >>> half = Part(weight=1.0, of=Constant(value=10.0)), Part(weight=1.0, of=Constant(value=90.0))
    >>> law = Mixture(parts=half)
    >>> law.expected(), law.values(np.array([-1.0, 1.0])).tolist()
    (50.0, [10.0, 90.0])
    """

    law: Literal["mixture"] = "mixture"
    parts: tuple[Part, ...]

    def __post_init__(self) -> None:
        if not self.parts:
            raise ValueError("a mixture has parts: give at least one")

    def values(self, normal: Floats, cap: float = inf) -> Floats:
        shares, values = _shares(normal), np.zeros(normal.shape)
        whole, begin = sum(part.weight for part in self.parts), 0.0
        for part in self.parts:
            width = part.weight / whole
            mask = (shares >= begin) & (shares < begin + width)
            within = np.clip((shares[mask] - begin) / width, _LEAST, 1.0 - _LEAST)
            values[mask] = part.of.values(_INVERSE(within) if mask.any() else within, cap)
            begin += width
        return values

    def expected(self, cap: float = inf) -> float:
        whole = sum(part.weight for part in self.parts)
        return sum(part.weight * part.of.expected(cap) for part in self.parts) / whole


_PLAIN: tuple[type[Law], ...] = (Constant, Lognormal, Measured)
LAWS: tuple[type[Law], ...] = (*_PLAIN, Mixture)
_INVERSE = np.vectorize(_NORMAL.inv_cdf, otypes=[float])
_BELOW = np.vectorize(_NORMAL.cdf, otypes=[float])  # the share of numbers below a number


def _shares(normal: Floats) -> Floats:
    return np.clip(_BELOW(normal) if normal.size else normal, _LEAST, 1.0 - _LEAST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Numbers of tokens: a law, a `cap` (longer texts are cut there), and the `correlation` of the
    normal numbers of the answers to a prompt (0: none).

    >>> lengths = Lengths(of=Lognormal(mean=100.0, sigma=0.5), cap=400, correlation=0.5)
    >>> drawn = lengths.drawn(7, "answers", 0, 4)
    >>> drawn.shape, bool((drawn == lengths.drawn(7, "answers", 0, 4)).all())
    ((4,), True)
    """

    of: Annotated[Law, Tagged("law", lambda: LAWS, inline=True, default="lognormal")]
    cap: Annotated[int, Ge(1)]
    correlation: Annotated[float, Ge(0), Lt(1)] = 0.0

    def __post_init__(self) -> None:
        self.of.expected(float(self.cap))

    @property
    def expected(self) -> float:
        """The mean length of texts that are cut at the cap."""
        return self.of.expected(float(self.cap))

    def drawn(self, seed: int, cause: str, prompt: int, answers: int) -> Floats:
        """Tokens of the answers to a prompt, whole numbers from 1 on. Equal arguments always give
        equal numbers."""
        block, place = divmod(prompt, _prompts(answers))
        drawn: Floats = _block(self, seed, cause, block, answers)[place]
        return drawn


def _prompts(answers: int) -> int:
    """The number of prompts of a block. It is smaller if a prompt has many answers, so that memory
    stays bounded."""
    return max(1, min(_BLOCK, _DRAWS // answers))


@lru_cache(maxsize=8)
def _block(lengths: Lengths, seed: int, cause: str, block: int, answers: int) -> Floats:
    """Tokens [prompts, answers] of a block of prompts."""
    normal = generator(seed, cause, block).standard_normal((_prompts(answers), 1 + answers))
    shared = sqrt(lengths.correlation) * normal[:, :1]
    individual = sqrt(1.0 - lengths.correlation) * normal[:, 1:]
    cap = float(lengths.cap)
    tokens: Floats = np.clip(np.rint(lengths.of.values(shared + individual, cap)), 1.0, cap)
    return tokens
