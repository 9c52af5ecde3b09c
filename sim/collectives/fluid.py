"""The second reading: bytes on every edge, and a number of dependent rounds.

The engine plays a collective as one transfer that loads all of its links at once, after a delay of
`rounds` latencies.
"""

from collections import Counter

from sim.collectives.schedule import ClosedForm, CollectiveSchedule
from sim.config.dataclass import dataclass

Edge = tuple[int, int, float]  # source, destination, bytes for each byte of the collective


@dataclass(frozen=True, slots=True, kw_only=True)
class Fluid(ClosedForm):
    """The closed form as counted from the rounds, and the bytes on every edge."""

    edges: tuple[Edge, ...]


def condense(schedule: CollectiveSchedule) -> Fluid:
    """Add up the bytes of the rounds.

    >>> from sim.collectives.algorithms import ring
    >>> condense(ring.all_gather(3)).edges
    ((0, 1, 0.6666666666666666), (1, 2, 0.6666666666666666), (2, 0, 0.6666666666666666))
    """
    chunk = 1.0 / schedule.chunks
    rounds = [Counter((send.src, send.dst) for send in round_) for round_ in schedule.rounds]
    pairs = Counter((send.src, send.dst) for round_ in schedule.rounds for send in round_)
    busiest = _busiest(pairs)
    return Fluid(
        rounds=len(rounds),
        edges=tuple((src, dst, count * chunk) for (src, dst), count in sorted(pairs.items())),
        bytes=busiest * chunk,
        fill=(sum(map(_busiest, rounds)) - busiest) * chunk,
    )


def _busiest(pairs: Counter[tuple[int, int]]) -> int:
    """Most chunks out of one rank, or into one."""
    out: Counter[int] = Counter()
    into: Counter[int] = Counter()
    for (src, dst), count in pairs.items():
        out[src] += count
        into[dst] += count
    return max([*out.values(), *into.values()], default=0)
