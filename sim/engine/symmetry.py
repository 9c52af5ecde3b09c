"""Which parts of a machine cannot be told apart: the coarsest equitable partition.

Ranks, communicators and links are the vertices of one graph; two vertices may share a class only
if they look alike and see the same number of neighbours of every class (colour refinement,
Weisfeiler and Leman 1968; Berkholz, Bonsma and Grohe 2017 for its complexity). Simulating one
member of each class is then exact.
"""

from collections.abc import Hashable, Sequence
from typing import NamedTuple


class Neighbour(NamedTuple):
    """An edge to `vertex`, `copies` times over; `label` says in which capacity."""

    vertex: int
    label: Hashable
    copies: int = 1


def equitable_partition(
    colours: Sequence[Hashable], neighbours: Sequence[Sequence[Neighbour]]
) -> list[int]:
    """The class of each vertex, numbered by first appearance; no coarser one is equitable.

    >>> line = [[Neighbour(1, "")], [Neighbour(0, ""), Neighbour(2, "")], [Neighbour(1, "")]]
    >>> equitable_partition(["a", "a", "a"], line)
    [0, 1, 0]
    """
    classes = _numbered(colours)
    while True:
        refined = _numbered([_view(v, classes, neighbours[v]) for v in range(len(classes))])
        if max(refined, default=0) == max(classes, default=0):
            return classes
        classes = refined


def _view(vertex: int, classes: list[int], edges: Sequence[Neighbour]) -> Hashable:
    seen: dict[Hashable, int] = {}
    for edge in edges:
        key = (edge.label, classes[edge.vertex])
        seen[key] = seen.get(key, 0) + edge.copies
    return classes[vertex], frozenset(seen.items())


def _numbered(keys: Sequence[Hashable]) -> list[int]:
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]
