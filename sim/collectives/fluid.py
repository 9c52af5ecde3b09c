"""The second reading: bytes on every edge, and a number of dependent rounds.

What the engine uses at scale: a collective is one transfer that loads all of its links at once,
after a delay of `rounds` latencies.
"""

from collections import Counter
from dataclasses import dataclass

from sim.collectives.schedule import Schedule

Edge = tuple[int, int, float]  # source, destination, bytes for each byte of the collective


@dataclass(frozen=True, slots=True, kw_only=True)
class Fluid:
    """Rounds, edges, and on a uniform network the busiest port's bytes and the pipeline's fill."""

    rounds: int
    edges: tuple[Edge, ...]
    bytes: float
    fill: float

    def time(self, size: float, *, alpha: float, bandwidth: float) -> float:
        """Seconds on an idle uniform network: rounds alpha + (bytes + fill) S/B."""
        return self.rounds * alpha + (self.bytes + self.fill) * size / bandwidth


def condense(schedule: Schedule) -> Fluid:
    """Add up what the rounds send.

    >>> from sim.collectives.algorithms import ring
    >>> condense(ring.all_gather(3)).edges
    ((0, 1, 0.6666666666666666), (1, 2, 0.6666666666666666), (2, 0, 0.6666666666666666))
    """
    part = 1.0 / schedule.chunks
    pairs = Counter((send.src, send.dst) for round_ in schedule.rounds for send in round_)
    in_turn = sum(_busiest(Counter((s.src, s.dst) for s in round_)) for round_ in schedule.rounds)
    busiest = _busiest(pairs)
    return Fluid(
        rounds=len(schedule.rounds),
        edges=tuple((src, dst, count * part) for (src, dst), count in sorted(pairs.items())),
        bytes=busiest * part,
        fill=(in_turn - busiest) * part,
    )


def _busiest(pairs: Counter[tuple[int, int]]) -> int:
    """Most chunks out of one rank, or into one."""
    out: Counter[int] = Counter()
    into: Counter[int] = Counter()
    for (src, dst), count in pairs.items():
        out[src] += count
        into[dst] += count
    return max([*out.values(), *into.values()], default=0)
