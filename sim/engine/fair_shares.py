"""Weighted max-min fair rates that are mended where something changes, not found anew.

A link that is full has a level: the rate of the flows that it holds back. A flow's rate is the
lowest of its own limit and the levels of its links, and the level x of a link solves
sum_g size_g load_g min(x, what its other links allow g) = capacity. Rates for which that holds
everywhere are the max-min fair ones (Bertsekas and Gallager, Data Networks, section 6.5.2): each
flow has a full link on which none is faster. So a change is followed from link to link, the lowest
level first, until nothing moves any more (Charny, Clark and Jain 1995, "Congestion control with
explicit rate indication"; Ros-Giralt et al. 2021 call it the bottleneck structure).
"""

from collections.abc import Iterable, Sequence
from math import inf

_SAME = 1e-13  # of a level
_MOST = 50  # looks at each link before all is found anew

Loads = Sequence[tuple[int, float]]


class FairShares:
    """Groups of equal flows. Group g loads links with `loads[g]` bytes for a byte of each of its
    flows, which have `own[g]` B/s at most. Links carry `capacity` B/s."""

    def __init__(
        self, loads: Sequence[Loads], own: Sequence[float], capacity: Sequence[float]
    ) -> None:
        self.own, self.capacity = own, capacity
        self._loads = loads
        self.rate = list(own)
        self._level = [inf] * len(capacity)
        self._on: list[dict[int, float]] = [{} for _ in capacity]  # load of the flows of a group
        self._others = [  # for each link of a group, those besides it
            {link: [other for other, _ in mine if other != link] for link, _ in mine}
            for mine in loads
        ]

    def settle(self, sizes: Iterable[tuple[int, int]]) -> set[int]:
        """Some groups have so many flows now; returns those whose rate has changed."""
        dirty: set[int] = set()
        changed: set[int] = set()
        for group, size in sizes:
            if size:
                self._limit(group, changed)
            for link, load in self._loads[group]:
                dirty.add(link)
                if size:
                    self._on[link][group] = size * load
                else:
                    self._on[link].pop(group, None)
        level, left = self._level, _MOST * len(self.capacity)
        while dirty:
            left -= 1
            if not left:
                raise RuntimeError("fair shares do not settle")
            link = min(dirty, key=level.__getitem__) if len(dirty) > 1 else next(iter(dirty))
            dirty.remove(link)
            new = self._full_at(link)
            old, level[link] = level[link], new
            if new == old or abs(new - old) <= _SAME * min(new, old):
                continue
            for group in self._on[link]:
                if self._limit(group, changed):
                    dirty.update(self._others[group][link])
        return changed

    def _limit(self, group: int, changed: set[int]) -> bool:
        """Give a group the rate that its links allow now; says whether it is another."""
        rate = self.own[group]
        for link, _ in self._loads[group]:
            if self._level[link] < rate:
                rate = self._level[link]
        if rate == self.rate[group]:
            return False
        self.rate[group] = rate
        changed.add(group)
        return True

    def _full_at(self, link: int) -> float:
        """The level at which a link is full, as other links are now; infinite where it is not."""
        level, own, on = self._level, self.own, self._on[link]
        total, left = sum(on.values()), self.capacity[link]
        limits = []
        for group, load in on.items():
            limit = own[group]
            for other in self._others[group][link]:
                if level[other] < limit:
                    limit = level[other]
            limits.append((limit, load))
        limits.sort()
        for limit, load in limits:
            if left <= limit * total:
                return left / total
            left -= limit * load
            total -= load
        return inf
