"""The collectives that `sim calibrate collectives` times: kinds, sizes and groups of ranks."""

from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random
from typing import Literal

from sim.collectives.schedule import KINDS, CollectiveKind
from sim.config.dataclass import dataclass
from sim.jobs.traces.operation_times import OperationTime

Suite = Literal["quick", "full"]
Group = tuple[int, ...]
WIDTH = 4  # bytes of an element, fp32
# Collectives of a training step. Other kinds only send from or to one rank, as point-to-point does.
TIMED = tuple(kind for kind in KINDS if kind not in ("gather", "scatter", "sendrecv"))
_STEP = {"quick": 8, "full": 2}  # the factor from each size to the next
_LARGEST = {"quick": 16 * 2**20, "full": 2**30}


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveCase:
    """A collective of `size` bytes, as nccl-tests counts them, in all of `groups` at once."""

    kind: CollectiveKind
    size: int
    groups: tuple[Group, ...]

    @property
    def ranks(self) -> int:
        return len(self.groups[0])

    def nodes(self, per_node: int) -> int:
        """Return the number of nodes, of `per_node` ranks each, over which a group extends."""
        return len({rank // per_node for rank in self.groups[0]})

    def key(self, per_node: int) -> tuple[object, ...]:
        """Return the identity of the case, which equals `key_of` of its reading."""
        nodes, size = self.nodes(per_node), float(self.size)
        return (self.kind, self.ranks, nodes, len(self.groups), size)


def key_of(reading: OperationTime) -> tuple[object, ...]:
    """Return the key of the case to which a reading belongs."""
    return (reading.operation, reading.ranks, reading.nodes, reading.groups, reading.bytes)


def collective_cases(
    ranks: int, per_node: int, suite: Suite, memory: float
) -> Iterator[CollectiveCase]:
    """Yield all cases of a suite. A rank may use `memory` bytes; a call takes two buffers.

    >>> [case.size for case in collective_cases(2, 2, "quick", 1e4) if case.kind == "reduce"]
    [8, 64, 512, 4096]
    """
    for groups in groupings(ranks, per_node):
        for kind in TIMED:
            for size in sizes(len(groups[0]), suite, memory):
                if kind != "point_to_point" or len(groups[0]) == 2:
                    yield CollectiveCase(kind=kind, size=size, groups=groups)


def sizes(ranks: int, suite: Suite, memory: float) -> list[int]:
    """Return sizes from 8 bytes up, each rounded to whole elements on every rank.

    >>> sizes(3, "quick", 1e4)
    [12, 60, 504, 4092]
    """
    unit, multiples, size = ranks * WIDTH, set[int](), 8
    while size <= min(_LARGEST[suite], memory / 2):
        multiples.add(max(1, size // unit) * unit)
        size *= _STEP[suite]
    return sorted(multiples)


def groupings(ranks: int, per_node: int) -> list[tuple[Group, ...]]:
    """Return groups of every size that divides the ranks: one group alone, and all groups at once.

    Groups of neighbours come first. With several nodes, groups of one rank of each node follow.

    >>> groupings(4, 2)[:2]
    [((0, 1),), ((0, 1), (2, 3))]
    >>> groupings(4, 2)[2:]
    [((0, 2),), ((0, 2), (1, 3)), ((0, 1, 2, 3),)]
    """
    partitions = []
    for size in (size for size in range(min(2, ranks), ranks + 1) if ranks % size == 0):
        partitions.append(_neighbours(ranks, size))
        if size * per_node == ranks and 1 < per_node < ranks:
            partitions.append([tuple(range(first, ranks, per_node)) for first in range(per_node)])
    alone_and_together = ((groups[:1], groups) for groups in partitions)
    return list(dict.fromkeys(tuple(groups) for pair in alone_and_together for groups in pair))


def _neighbours(ranks: int, size: int) -> list[Group]:
    return [tuple(range(first, first + size)) for first in range(0, ranks, size)]


def shuffled(cases: Sequence[CollectiveCase], passes: int) -> list[CollectiveCase]:
    """Return all cases `passes` times, each time in another order, which is equal on all ranks.

    If the machine is slow for a while, this spoils one time of some sizes, but not all times of
    a size.
    """
    orders = [list(cases) for _ in range(passes)]
    for seed, order in enumerate(orders):
        Random(seed).shuffle(order)
    return [case for order in orders for case in order]


def remaining(
    cases: Sequence[CollectiveCase], done: Sequence[OperationTime], per_node: int
) -> list[CollectiveCase]:
    """Return the cases without a reading. A case that is listed twice needs two readings."""
    counts, missing = Counter(map(key_of, done)), []
    for case in cases:
        key = case.key(per_node)
        if counts[key]:
            counts[key] -= 1
        else:
            missing.append(case)
    return missing
