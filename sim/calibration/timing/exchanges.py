"""What `sim calibrate collectives` times: every kind, size and group of so many ranks."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from sim.collectives.schedule import KINDS, CollectiveKind
from sim.formats.operation_times import OperationTime

Suite = Literal["quick", "full"]
WIDTH = 4  # bytes of an element, fp32
_STEP = {"quick": 8, "full": 2}  # a size follows the one before times this
_LARGEST = {"quick": 16 * 2**20, "full": 2**30}


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A collective of `size` bytes, as nccl-tests counts them, in each of `groups` at once."""

    kind: CollectiveKind
    size: int
    groups: tuple[tuple[int, ...], ...]

    @property
    def ranks(self) -> int:
        return len(self.groups[0])

    def nodes(self, per_node: int) -> int:
        """How many nodes of `per_node` ranks a group lies on."""
        return len({rank // per_node for rank in self.groups[0]})

    def key(self, per_node: int) -> tuple[object, ...]:
        """What tells it from the others, as `key_of` says of its reading."""
        nodes, size = self.nodes(per_node), float(self.size)
        return (self.kind, self.ranks, nodes, len(self.groups), size)


def key_of(reading: OperationTime) -> tuple[object, ...]:
    """Which exchange a reading is of."""
    one = reading
    return (one.operation, one.ranks, one.nodes, one.groups, one.bytes)


def exchanges(ranks: int, per_node: int, suite: Suite, memory: float) -> Iterator[Exchange]:
    """All of a suite; `memory` (bytes) is what a rank may use, of which a call takes two buffers.

    >>> [one.size for one in exchanges(2, 2, "quick", 1e4) if one.kind == "reduce"]
    [8, 64, 512, 4096]
    """
    for groups in layouts(ranks, per_node):
        for kind in KINDS:
            for size in sizes(len(groups[0]), suite, memory):
                if kind != "point_to_point" or len(groups[0]) == 2:
                    yield Exchange(kind=kind, size=size, groups=groups)


def sizes(ranks: int, suite: Suite, memory: float) -> list[int]:
    """From 8 bytes up, each a multiple of an element for every rank.

    >>> sizes(3, "quick", 1e4)
    [12, 60, 504, 4092]
    """
    unit, found, size = ranks * WIDTH, list[int](), 8
    while size <= min(_LARGEST[suite], memory / 2):
        found.append(max(1, size // unit) * unit)
        size *= _STEP[suite]
    return sorted(set(found))


def layouts(ranks: int, per_node: int) -> list[tuple[tuple[int, ...], ...]]:
    """The groups that the machines distinguish: each world size that divides, alone and at once.

    Neighbours first, then, where there are several nodes, one rank of each.

    >>> layouts(4, 2)[:2]
    [((0, 1),), ((0, 1), (2, 3))]
    >>> layouts(4, 2)[2:]
    [((0, 2),), ((0, 2), (1, 3)), ((0, 1, 2, 3),)]
    """
    found = []
    for size in (size for size in range(min(2, ranks), ranks + 1) if ranks % size == 0):
        found.append(_neighbours(ranks, size))
        if size * per_node == ranks and 1 < per_node < ranks:
            found.append([tuple(range(first, ranks, per_node)) for first in range(per_node)])
    alone_and_together = ((groups[:1], groups) for groups in found)
    return list(dict.fromkeys(tuple(part) for pair in alone_and_together for part in pair))


def _neighbours(ranks: int, size: int) -> list[tuple[int, ...]]:
    return [tuple(range(first, first + size)) for first in range(0, ranks, size)]


def shuffled(wanted: Sequence[Exchange], passes: int) -> list[Exchange]:
    """All of them so many times, each pass in an order of its own, the same on every rank.

    A machine that is slow for a while then spoils one pass of some sizes, not all of one size.
    """
    orders = [list(wanted) for _ in range(passes)]
    for seed, order in enumerate(orders):
        Random(seed).shuffle(order)
    return [one for order in orders for one in order]


def left(
    wanted: Sequence[Exchange], done: Sequence[OperationTime], per_node: int
) -> list[Exchange]:
    """Those of which there is no reading yet; one that is wanted twice takes two."""
    known, missing = Counter(map(key_of, done)), []
    for one in wanted:
        key = one.key(per_node)
        if known[key]:
            known[key] -= 1
        else:
            missing.append(one)
    return missing
