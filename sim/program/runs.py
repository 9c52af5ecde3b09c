"""Runs of equal things in a row: what a pass of a hundred equal layers is counted by."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TypeVar

Thing = TypeVar("Thing")


def runs(things: Iterable[Thing]) -> Iterator[tuple[Thing, int]]:
    """Each thing with how many times it stands in a row, the very same object.

    >>> list(runs(["a", "a", "b", "a"]))
    [('a', 2), ('b', 1), ('a', 1)]
    """
    for _, same in groupby(things, key=id):
        alike = list(same)
        yield alike[0], len(alike)
