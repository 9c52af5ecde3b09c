"""Sums of durations, interned: the weights of a (max, +) graph before their values are known.

A weight is a sum of parameters such as "device time of stage 3's forward pass + its launch gap".
Equal sums share one row. So a graph of ten thousand edges has a few hundred rows, whose values for
many columns are one small table. Bounds on the parameters often tell which of two rows is surely
larger, so the graph can drop terms that never matter.
"""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from sim.config.dataclass import dataclass

Floats = NDArray[np.float64]
Real = TypeVar("Real", np.float64, np.float32)
Sum = tuple[tuple[int, int], ...]  # (parameter, how often), sorted by parameter
Scaled = tuple[tuple[int, float], ...]  # (parameter, factor), sorted by parameter

NOTHING = 0  # the row of the empty sum


class Weights:
    """Rows of sums over parameters that stay within `low` and `high`."""

    def __init__(self, low: Floats, high: Floats) -> None:
        self._low: list[float] = low.tolist()
        self._high: list[float] = high.tolist()
        self.sums: list[Sum] = [()]
        self.low, self.high = [0.0], [0.0]
        self._number: dict[Sum, int] = {(): NOTHING}
        self._more: dict[tuple[int, int], int] = {}
        self._joined: dict[tuple[int, int], int] = {}
        self._larger: dict[tuple[int, int], bool] = {}

    def plus(self, row: int, parameter: int) -> int:
        """The row of a row's sum plus one parameter."""
        key = (row, parameter)
        if key not in self._more:
            self._more[key] = self._row({**dict(self.sums[row])}, ((parameter, 1),))
        return self._more[key]

    def both(self, left: int, right: int) -> int:
        """The row of the sum of two rows."""
        if left == NOTHING or right == NOTHING:
            return left or right
        key = (left, right)
        if key not in self._joined:
            self._joined[key] = self._row(dict(self.sums[left]), self.sums[right])
        return self._joined[key]

    def surely(self, larger: int, smaller: int) -> bool:
        """Whether one row is at least the other for all parameters within their bounds."""
        if larger == smaller or self.low[larger] >= self.high[smaller]:
            return True
        key = (larger, smaller)
        if key not in self._larger:
            difference = dict(self.sums[larger])
            for parameter, count in self.sums[smaller]:
                difference[parameter] = difference.get(parameter, 0) - count
            self._larger[key] = self._least(difference) >= 0.0
        return self._larger[key]

    def table(self, rows: Sequence[int]) -> "Table":
        """The sums of these rows, ready to be evaluated."""
        return Table.of([self.sums[row] for row in rows])

    def _row(self, total: dict[int, int], more: Sequence[tuple[int, int]]) -> int:
        for parameter, count in more:
            total[parameter] = total.get(parameter, 0) + count
        key = tuple(sorted(total.items()))
        if key not in self._number:
            self._number[key] = len(self.sums)
            self.sums.append(key)
            self.low.append(self._least(total))
            self.high.append(-self._least({p: -count for p, count in total.items()}))
        return self._number[key]

    def _least(self, total: dict[int, int]) -> float:
        """The smallest possible value of a sum whose counts may be negative."""
        low, high = self._low, self._high
        return sum((n * (low[p] if n > 0 else high[p]) for p, n in total.items()), 0.0)


@dataclass(frozen=True, slots=True)
class Table:
    """Sums in arrays, the longest sum first. `parameters[k]` and `counts[k]` have the kth terms of
    all sums that are long enough; `place[i]` is the place of sum i."""

    parameters: tuple[NDArray[np.intp], ...]
    counts: tuple[Floats, ...]
    place: NDArray[np.intp]

    @classmethod
    def of(cls, sums: Sequence[Sum | Scaled]) -> "Table":
        order = sorted(range(len(sums)), key=lambda i: -len(sums[i]))
        place = np.empty(len(sums), dtype=np.intp)
        place[order] = np.arange(len(sums))
        longest = len(sums[order[0]]) if order else 0
        parameters, counts = [], []
        for k in range(longest):
            terms = [sums[i][k] for i in order if len(sums[i]) > k]
            parameters.append(np.array([p for p, _ in terms], dtype=np.intp))
            counts.append(np.array([count for _, count in terms], dtype=np.float64))
        return cls(tuple(parameters), tuple(counts), place)

    def values(self, parameters: NDArray[Real]) -> NDArray[Real]:
        """The values of the sums, sum i at `place[i]`. Parameters [n] give [sums], parameters
        [n, columns] give [sums, columns]. The result has the precision of the parameters.
        """
        kind = parameters.dtype
        found: NDArray[Real] = np.zeros((len(self.place), *parameters.shape[1:]), dtype=kind)
        for index, count in zip(self.parameters, self.counts, strict=True):
            term, count = parameters[index], count.astype(kind, copy=False)
            found[: len(index)] += term * (count if term.ndim == 1 else count[:, None])
        return found

    def sums(self) -> list[Sum]:
        """The sums in the order in which `values` returns them."""
        found: list[list[tuple[int, int]]] = [[] for _ in self.place]
        for index, count in zip(self.parameters, self.counts, strict=True):
            for terms, parameter, often in zip(found, index.tolist(), count.tolist(), strict=False):
                terms.append((parameter, int(often)))
        return [tuple(terms) for terms in found]
