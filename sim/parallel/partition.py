"""A row of unlike layers cut so that the costliest piece is as cheap as can be.

Dynamic programming over where each piece ends, as in PipeDream (Narayanan et al. 2019, section
3.1): the best way to cut the first j layers into k pieces follows from those into k - 1. Among the
ways that are as good the most even one is taken, that with the least sum of squares.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_ROUNDING = 1e-9


@lru_cache(maxsize=1024)
def partition(
    costs: tuple[float, ...], pieces: int, *, first: float = 0.0, last: float = 0.0
) -> tuple[int, ...]:
    """How many layers each piece has. The first piece costs `first` more, the last one `last`; only
    these two may have no layer. Raises `ValueError` where there are fewer layers than pieces in
    between.

    >>> partition((1, 1, 1, 4, 4, 4, 4, 4), 4, last=2)
    (4, 1, 2, 1)
    """
    if len(costs) < pieces - 2:
        raise ValueError(f"{len(costs)} layers for {pieces} pieces")
    taken = [_taken(costs, k, pieces, first, last) for k in range(pieces)]
    worst, _ = _cheapest(taken, np.maximum)
    allowed = worst * (1.0 + _ROUNDING)
    squares = [np.where(row <= allowed, row**2, np.inf) for row in taken]
    _, ends = _cheapest(squares, np.add)
    return tuple(np.diff([0, *ends]).tolist())


def _taken(costs: Sequence[float], k: int, pieces: int, first: float, last: float) -> Floats:
    """The cost of piece k, from its beginning to its end; infinite where it is impossible."""
    sums = np.concatenate(([0.0], np.cumsum(costs)))
    spans: Floats = sums[None, :] - sums[:, None]
    places = np.arange(len(sums))
    fewest = 0 if k in (0, pieces - 1) else 1
    spans = np.where(places[None, :] - places[:, None] >= fewest, spans, np.inf)
    return spans + (first if k == 0 else 0.0) + (last if k == pieces - 1 else 0.0)


def _cheapest(
    taken: Sequence[Floats], combine: Callable[[Floats, Floats], Floats]
) -> tuple[float, list[int]]:
    """The least that all pieces cost together, and where each of them ends."""
    best, begins = taken[0][0], list[NDArray[np.intp]]()
    for own in taken[1:]:
        ways = combine(best[:, None], own)
        begins.append(ways.argmin(axis=0))
        best = ways.min(axis=0)
    ends = [len(best) - 1]
    for row in reversed(begins):
        ends.append(int(row[ends[-1]]))
    return float(best[-1]), ends[::-1]
