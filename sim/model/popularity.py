"""How popular the rows of a table are: Zipf's law, the k-th with chance k^-s / H(R, s) of R rows.

As benchmarks of embedding tables draw their requests (FBGEMM, fbgemm_gpu/tbe/utils/requests.py,
`alpha`: uniform where it says nothing, Zipf's law where it does). Rows are numbered from the most
popular one on, as a vocabulary that is ordered by frequency.
"""

from math import exp, expm1, log, log1p

_EXACT = 512  # terms that are added up one by one; beyond, sums are integrals
_CELLS = 400


def harmonic(rows: int, skew: float) -> float:
    """H(R, s) = sum of k^-s over k = 1 to R.

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
    """The share of all look-ups that goes to the `first` rows.

    >>> read_of(100, 25, 0.0), round(read_of(100, 25, 1.0), 3)
    (0.25, 0.736)
    """
    return harmonic(first, skew) / harmonic(rows, skew)


def distinct(rows: int, draws: int, skew: float) -> float:
    """How many rows so many look-ups meet in the mean: sum of 1 - (1 - p_k)^n.

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
