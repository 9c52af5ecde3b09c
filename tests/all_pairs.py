"""Covering arrays: few cases in which every two values of different parameters meet."""

from collections.abc import Iterable, Sequence
from itertools import combinations, product
from typing import Any

import pytest


def all_pairs(**values: Sequence[Any]) -> Any:
    """`pytest.mark.parametrize` with cases in which every pair of values occurs.

    Each case is the one of all that meets most pairs which have not met yet (Cohen et al. 1997),
    the first of equals; the order of values is that in which they are given.
    """
    return pytest.mark.parametrize(tuple(values), covering(list(values.values())))


def covering(values: Sequence[Iterable[Any]]) -> list[tuple[Any, ...]]:
    """Cases [parameters], each place with one of its values.

    >>> covering([[0, 1], [0, 1], [0, 1]])
    [(0, 0, 0), (0, 1, 1), (1, 0, 1), (1, 1, 0)]
    """
    every = [tuple(enumerate(case)) for case in product(*values)]
    pairs = {case: frozenset(combinations(case, 2)) for case in every}
    missing = frozenset().union(*pairs.values())
    found = []
    while missing:
        best = max(every, key=lambda case: len(pairs[case] & missing))
        missing -= pairs[best]
        found.append(tuple(value for _, value in best))
    return found
