"""Values by their key."""

from collections import defaultdict
from collections.abc import Iterable
from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


def grouped(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """Return the values of each key, keys and values in the order of the pairs.

    >>> grouped([("b", 1), ("a", 2), ("b", 3)])
    {'b': [1, 3], 'a': [2]}
    """
    found: defaultdict[Key, list[Value]] = defaultdict(list)
    for key, value in pairs:
        found[key].append(value)
    return dict(found)
