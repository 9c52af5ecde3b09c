"""Cuts a row of unlike layers so that the costliest piece is as cheap as possible.

Cuts are found by dynamic programming, as in PipeDream (Narayanan et al. 2019, section 3.1). The
best cuts of j layers into k pieces follow from the best cuts into k - 1 pieces. Among equally good
cuts the most even cut is taken, with the least sum of squared costs.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_ROUNDING = 1e-9  # relative tolerance of costs


@lru_cache(maxsize=1024)
def partition(
    costs: tuple[float, ...], pieces: int, *, first: float = 0.0, last: float = 0.0
) -> tuple[int, ...]:
    """Return the number of layers of each piece. The first piece costs `first` more, the last piece
    `last`; only these two may be empty. Raises `ValueError` for too few layers.

    >>> partition((1, 1, 1, 4, 4, 4, 4, 4), 4, last=2)
    (4, 1, 2, 1)
    """
    if len(costs) < pieces - 2:
        raise ValueError(f"{len(costs)} layers are too few for {pieces} pieces")
    taken = [_taken(costs, k, pieces, first, last) for k in range(pieces)]
    worst, _ = _cheapest(taken, np.maximum)
    allowed = worst * (1.0 + _ROUNDING)
    squares = [np.where(row <= allowed, row**2, np.inf) for row in taken]
    _, ends = _cheapest(squares, np.add)
    return tuple(np.diff([0, *ends]).tolist())


def _taken(costs: Sequence[float], k: int, pieces: int, first: float, last: float) -> Floats:
    """Return the cost of piece k for every beginning and end; infinite for impossible pieces."""
    sums = np.concatenate(([0.0], np.cumsum(costs)))
    spans: Floats = sums[None, :] - sums[:, None]
    places = np.arange(len(sums))
    fewest = 0 if k in (0, pieces - 1) else 1
    spans = np.where(places[None, :] - places[:, None] >= fewest, spans, np.inf)
    return spans + (first if k == 0 else 0.0) + (last if k == pieces - 1 else 0.0)


def _cheapest(
    taken: Sequence[Floats], combine: Callable[[Floats, Floats], Floats]
) -> tuple[float, list[int]]:
    """Return the least combined cost of all pieces, and the end of each piece."""
    best, begins = taken[0][0], list[NDArray[np.intp]]()
    for costs in taken[1:]:
        ways = combine(best[:, None], costs)
        begins.append(ways.argmin(axis=0))
        best = ways.min(axis=0)
    ends = [len(best) - 1]
    for row in reversed(begins):
        ends.append(int(row[ends[-1]]))
    return float(best[-1]), ends[::-1]
