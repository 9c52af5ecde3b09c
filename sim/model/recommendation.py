"""Recommendation models (DLRM): embedding tables, two perceptrons, pairwise interactions.

Naumov et al. 2019 (arXiv 1906.00091), sections 2 and 3: dense features go through the bottom
perceptron to a dense vector, and categorical features look up vectors in tables. The dense vector
and the dot products of all pairs of vectors go through the top perceptron to one logit.

The k-th row of a table of R rows is read with probability k^-s / H(R, s), by Zipf's law with
exponent s. Benchmarks of embedding tables draw their requests in this way if they set `alpha` = s
(FBGEMM, fbgemm_gpu/tbe/utils/requests.py). Rows are numbered by falling popularity.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from math import ceil, exp, expm1, log, log1p
from typing import Annotated, ClassVar, Literal

from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.units import Ge, Le
from sim.model.kernels import BYTES

_EXACT = 512  # terms that are added one by one; further terms are integrated
_CELLS = 400


def harmonic(rows: int, skew: float) -> float:
    """Return H(R, s), the sum of k^-s over k = 1 to R, for R `rows` and the exponent s = `skew`.

    >>> harmonic(4, 0.0), harmonic(3, 1.0)
    (4.0, 1.8333333333333333)
    >>> round(harmonic(10**6, 1.0), 9)  # ln R + 0.5772 + 1 / 2R
    14.392726723
    """
    if not skew:
        return float(rows)
    near = sum(_weight(k, skew) for k in range(1, min(rows, _EXACT) + 1))
    if rows <= _EXACT:
        return near
    first, last = float(_EXACT), float(rows)  # Euler and Maclaurin's formula
    between = log(last / first)
    if skew != 1.0:
        between = (_weight(last, skew - 1.0) - _weight(first, skew - 1.0)) / (1.0 - skew)
    ends = 0.5 * (_weight(last, skew) - _weight(first, skew))
    slopes = skew * (_weight(first, skew + 1.0) - _weight(last, skew + 1.0)) / 12.0
    return near + between + ends + slopes


def read_of(rows: int, first: int, skew: float) -> float:
    """Return the share of all look-ups that goes to the first `first` of `rows` rows.

    >>> read_of(100, 25, 0.0), round(read_of(100, 25, 1.0), 3)
    (0.25, 0.736)
    """
    return harmonic(first, skew) / harmonic(rows, skew)


def distinct(rows: int, draws: int, skew: float) -> float:
    """Return the expected number of different rows in n = `draws` look-ups: sum of 1 - (1 - p_k)^n,
    where p_k is the probability of row k.

    >>> round(distinct(100, 100, 0.0), 2), round(distinct(100, 100, 1.0), 2)
    (63.4, 41.35)
    """
    if rows == 1:
        return 1.0
    if not skew:
        return -rows * expm1(draws * log1p(-1.0 / rows))
    whole = harmonic(rows, skew)

    def met(row: float) -> float:
        return -expm1(draws * log1p(-_weight(row, skew) / whole))

    near = sum(met(k) for k in range(1, min(rows, _EXACT) + 1))
    if rows <= _EXACT:
        return near
    start, end = log(_EXACT + 0.5), log(rows + 0.5)
    step = (end - start) / _CELLS
    middles = (exp(start + (n + 0.5) * step) for n in range(_CELLS))
    return near + sum(met(row) * row * step for row in middles)


def _weight(row: float, skew: float) -> float:
    return exp(-skew * log(row))


INDEX = 8  # bytes of an index, torch.int64
_MOST_TABLES = 100_000  # a hundred times as many as the largest published model has, Mudigere 2022

Division = Literal["table", "row", "column"]
Part = Literal["tables", "interaction", "top"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A part of the model. `widths` are the widths of its input and of its layers' outputs."""

    name: str
    part: Part
    widths: tuple[int, ...]
    last: bool = False


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """The content of `models/NAME.toml`: `tables` gives the rows of each table; all tables have
    `dim` columns. A sample has `dense` dense features.

    A sample looks up `lookups` rows in every table and sums them (a bag). The k-th row of a table
    is read in proportion to k^-`skew`; with 0 all rows are read equally often. `bottom` and `top`
    are the widths of the perceptrons' layers; the bottom perceptron ends with `dim`, the top one
    with 1. The ranks of `ep` divide tables by `table` (each rank has some tables), by `row` or by
    `column` (each rank has a share of all tables; Mudigere et al. 2022, arXiv 2104.05158). Tables
    have the precision of the plan.
    """

    feature_maps: ClassVar[bool] = False
    divides_tables: ClassVar[bool] = True

    kind: Literal["recommendation"]
    name: str = ""
    dense: int
    tables: tuple[int, ...]
    dim: int
    lookups: int = 1
    skew: Annotated[float, Ge(0), Le(10)] = 0.0
    bottom: tuple[int, ...]
    top: tuple[int, ...]
    division: Division = "table"

    def __post_init__(self) -> None:
        for key in ("tables", "bottom", "top"):
            if not getattr(self, key) or min(getattr(self, key)) < 1:
                raise ValueError(f"{key} needs sizes of at least 1; e.g. {key} = [512, 128]")
        if len(self.tables) > _MOST_TABLES:
            raise ValueError(f"{len(self.tables):,} tables are more than can be simulated")
        if self.bottom[-1] != self.dim:
            fault = f"bottom ends with {self.bottom[-1]}, not with dim = {self.dim}"
            raise ValueError(f"{fault}; let it end with {self.dim}")
        if self.top[-1] != 1:
            raise ValueError(f"top ends with {self.top[-1]}; let it end with 1, the logit")

    @property
    def vectors(self) -> int:
        """Number of vectors that interact: one for each table, and the bottom perceptron's."""
        return len(self.tables) + 1

    @property
    def features(self) -> int:
        """Inputs of the top perceptron: the width of the dense vector, and one for each pair."""
        return self.dim + self.vectors * (self.vectors - 1) // 2

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """The model's parts: tables with the bottom perceptron, the interaction, and each layer of
        the top perceptron."""
        return tuple(self._layers())

    def _layers(self) -> Iterator[Layer]:
        yield Layer(name="tables", part="tables", widths=(self.dense, *self.bottom))
        yield Layer(name="interaction", part="interaction", widths=(self.features,))
        for number, widths in enumerate(pairwise((self.features, *self.top))):
            last = number == len(self.top) - 1
            yield Layer(name=f"top {number}", part="top", widths=widths, last=last)

    @property
    def inputs(self) -> float:
        """Bytes of a sample: dense features and label in fp32, an index for each look-up."""
        return 4.0 * (self.dense + 1) + INDEX * self.lookups * len(self.tables)

    def handed(self, layer: int, width: float) -> float:
        """Return the bytes of a sample that a layer hands on, in activations of `width` bytes."""
        chosen = self.layers[layer]
        return width * (self.vectors * self.dim if chosen.part == "tables" else chosen.widths[-1])

    def pulled(self, batch: int) -> "Recommendation":
        """Return the model with only the rows of its tables that the samples read; a worker asks
        the parameter servers for these rows alone (Li et al. 2014, section 3.1)."""
        return replace(self, tables=self.touched(batch))

    def check(self, precision: str, device: str) -> None:
        """Raise `InputError` for a precision below 16 bits; the model runs on every device."""
        if BYTES[precision] < 2:
            fault = f"precision = {precision!r} is not modelled for embedding tables"
            raise InputError("plan", fault, "set a precision of 16 bits or more")

    def check_ranks(self, ep: int, ranks: int, where: str) -> None:
        """Raise `InputError` unless tables are divided over all `ranks` that train with them."""
        if ep != ranks:
            fault = f"ep = {ep}: embedding tables are divided over all {ranks} ranks of the batch"
            raise InputError(where, fault, f"set ep = {ranks}")
        if self.division == "table" and ep > len(self.tables):
            fault = f"ep = {ep} ranks for {len(self.tables)} whole tables"
            raise InputError(where, fault, 'set division = "row" or "column" in the model')
        if self.division == "column" and self.dim % ep:
            fault = f"ep = {ep} does not divide dim = {self.dim} columns"
            raise InputError(where, fault, 'change ep, or set division = "row" in the model')

    def held(self, ranks: int) -> float:
        """Return the parameters in the tables of the fullest of `ranks` ranks. Whole tables go to
        the ranks in turn, the largest tables first. torchrec's greedy partitioner does the same if
        every table costs the same (distributed/planner/partitioners.py)."""
        if self.division == "column":
            return float(sum(self.tables) * self.dim // ranks)
        if self.division == "row":
            return float(sum(ceil(each / ranks) for each in self.tables) * self.dim)
        ordered = sorted(self.tables, reverse=True)
        fullest = max(sum(ordered[rank::ranks]) for rank in range(ranks))
        return float(fullest * self.dim)

    def touched(self, batch: int) -> tuple[int, ...]:
        """Return the number of different rows of each table that `batch` samples read."""
        reads = batch * self.lookups
        return tuple(ceil(distinct(rows, reads, self.skew)) for rows in self.tables)

    def fullest(self, ranks: int) -> float:
        """Return the number of look-ups on the busiest rank, relative to the mean rank. With whole
        tables the busiest rank has the most tables. With divided rows each rank has a block of
        equally many rows (torchrec, distributed/sharding/rw_sharding.py), and the first block has
        the most popular rows."""
        if self.division == "table":
            return ceil(len(self.tables) / ranks) * ranks / len(self.tables)
        if self.division == "column":
            return 1.0
        shares = (read_of(rows, ceil(rows / ranks), self.skew) for rows in self.tables)
        return ranks * sum(shares) / len(self.tables) if self.skew else 1.0
