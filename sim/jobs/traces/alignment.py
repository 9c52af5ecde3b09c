"""How far apart are the clocks of the ranks of one job?

A collective ends on all of its ranks at about the same time. The median distance of these ends is
the distance of two hosts' clocks (Hu et al. 2022, dPRO, section 4.2), and thereby of the beginnings
of their steps. A collective that ends later than this has a `tail`.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

from sim.jobs.traces.rank_trace import Group, HostSpan, Kernel, RankTrace


def aligned(ranks: Sequence[RankTrace]) -> list[RankTrace]:
    """Ranks that begin as much later than the first of them as their traces did."""
    offsets = [_offset(ranks[0], rank) for rank in ranks]
    first = min(offsets, default=0.0)
    later = [offset - first for offset in offsets]
    earliest = _earliest_ends(ranks, later)
    return [_later(rank, offset, earliest) for rank, offset in zip(ranks, later, strict=True)]


def _offset(reference: RankTrace, rank: RankTrace) -> float:
    """Seconds by which a rank began later than another with which it has collectives in common."""
    common = reference.flights.keys() & rank.flights.keys()
    ends = (reference.flights[key][1] - rank.flights[key][1] for key in common)
    return median(ends) if common else 0.0


def _earliest_ends(ranks: Sequence[RankTrace], later: Sequence[float]) -> dict[Group, float]:
    """When each collective could end: as soon after the last rank came as it ever lasted."""
    begins: defaultdict[Group, list[float]] = defaultdict(list)
    lasted: defaultdict[Group, list[float]] = defaultdict(list)
    for rank, offset in zip(ranks, later, strict=True):
        for key, (begin, end) in rank.flights.items():
            begins[key].append(begin + offset)
            lasted[key].append(end - begin)
    return {key: max(moments) + min(lasted[key]) for key, moments in begins.items()}


def _later(rank: RankTrace, seconds: float, earliest: Mapping[Group, float]) -> RankTrace:
    if rank.measured is None or not rank.host:
        return rank
    host = (HostSpan(seconds=seconds), *rank.host) if seconds > 0.0 else rank.host
    kernels = tuple(_ended(kernel, rank, seconds, earliest) for kernel in rank.kernels)
    return replace(rank, host=host, kernels=kernels, measured=rank.measured + seconds)


def _ended(
    kernel: Kernel, rank: RankTrace, offset: float, earliest: Mapping[Group, float]
) -> Kernel:
    key = kernel.collective.key if kernel.collective else None
    if key is None or key not in rank.flights:
        return kernel
    tail = rank.flights[key][1] + offset - earliest[key]
    return replace(kernel, tail=tail) if tail > 0.0 else kernel
