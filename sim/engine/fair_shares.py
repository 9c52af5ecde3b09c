"""Weighted max-min fair rates: the solver for all traffic, which updates rates after a change.

A link that is full has a level: the rate of the flows that it holds back. A flow's rate is the
lowest of its limit and the levels of its links. The level x of a link solves sum_s load_s
demand_s(min(x, level of the other links of s)) = capacity, where s counts the shares on the link.
Rates that satisfy this for all links are max-min fair (Bertsekas and Gallager, Data Networks,
section 6.5.2): each flow has a full link on which no flow is faster. So a change is followed from
link to link, the lowest level first, until no level changes any more (Charny, Clark and Jain 1995,
"Congestion control with explicit rate indication"; Ros-Giralt et al. 2021 call these dependences
the bottleneck structure).
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from math import inf
from operator import attrgetter

_SAME = 1e-13  # share of a level: smaller changes do not count
_MOST = 1000  # visits of each link before the search is given up

Loads = tuple[tuple[int, float], ...]


class Share:
    """`size` equal flows, each with the rate `fair` (B/s), which is at most `limit`. A byte of a
    flow puts bytes on each link as `loads` say. Shares get their rates in the order `order`. The
    link `narrowest` has the `lowest` level; the other links' levels are at least `second`."""

    __slots__ = ("fair", "limit", "loads", "lowest", "narrowest", "order", "second", "size")

    def __init__(self, loads: Loads, order: int, limit: float = inf) -> None:
        self.loads, self.order, self.limit = loads, order, limit
        self.fair, self.size = 0.0, 0
        self.lowest = self.second = inf
        self.narrowest = -1

    def below(self, link: int) -> float:
        """The rate (B/s) that the limit and all links except `link` allow."""
        level = self.second if link == self.narrowest else self.lowest
        return level if level < self.limit else self.limit

    def demand(self, level: float) -> tuple[float, float]:
        """(a, b): just below this level (B/s), the flows together take a + b * level."""
        return 0.0, self.size


class FairShares:
    """Links that carry `capacity` B/s each, and the shares that load each link."""

    def __init__(self, capacity: Sequence[float]) -> None:
        self.capacity = list(capacity)
        self.on: list[dict[Share, float]] = [{} for _ in capacity]
        self._level = [inf] * len(capacity)
        self._dirty: set[int] = set()
        self._changed: set[Share] = set()

    def add_link(self, capacity: float) -> int:
        """Add a link and return its number."""
        self.capacity.append(capacity)
        self.on.append({})
        self._level.append(inf)
        return len(self.capacity) - 1

    def change(self, link: int, capacity: float) -> None:
        """Give a link another `capacity` (B/s) from the next `settle` on."""
        self.capacity[link] = capacity
        self._dirty.add(link)

    def resize(self, share: Share, size: int) -> bool:
        """Give a share another number of flows, and return whether `settle` must be called. If the
        share has its links to itself, its rate is set at once."""
        share.size = size
        if not size:
            return self._leave(share)
        alone = True
        for link, load in share.loads:
            on = self.on[link]
            on[share] = load
            alone = alone and len(on) == 1
        if not alone:
            self._dirty.update([link for link, _ in share.loads])
            self._look(share)
        elif share.loads:
            self._alone(share)
        self._limit(share)
        return not alone

    def _alone(self, share: Share) -> None:
        narrowest, _ = min(share.loads, key=lambda item: self.capacity[item[0]] / item[1])
        for link, _ in share.loads:
            self._dirty.discard(link)
            if link != narrowest:
                self._level[link] = inf
        share.narrowest, share.lowest, share.second = narrowest, inf, inf
        share.lowest = self._level[narrowest] = self._full_at(narrowest)

    def _leave(self, share: Share) -> bool:
        self._changed.discard(share)
        for link, _ in share.loads:
            on = self.on[link]
            on.pop(share, None)
            if not on:
                self._level[link] = inf
                self._dirty.discard(link)
            elif self._level[link] < inf:
                self._dirty.add(link)
        return bool(self._dirty)

    def alone(self, loads: Loads) -> float:
        """The rate (B/s) of a flow that has its links to itself."""
        return min([self.capacity[link] / load for link, load in loads])

    def settle(self) -> list[Share]:
        """Give all shares their fair rates; return the shares with changed rates, by `order`."""
        dirty, level = self._dirty, self._level
        left = _MOST * len(self.capacity)
        fullest = [(level[link], link) for link in dirty]  # a level changes when its link is popped
        heapify(fullest)
        while fullest:
            left -= 1
            if not left:
                raise RuntimeError("fair shares do not settle")
            _, link = heappop(fullest)
            dirty.remove(link)
            new, old = self._full_at(link), level[link]
            if new == old or abs(new - old) <= _SAME * min(new, old):
                continue
            level[link] = new
            for share in self.on[link]:
                before = share.fair
                self._moved(share, link, old, new)
                if self._limit(share):
                    slower = share.fair < before  # if slower, links with room keep their room
                    for other, _ in share.loads:
                        if (
                            other not in dirty
                            and other != link
                            and not (slower and level[other] == inf)
                        ):
                            dirty.add(other)
                            heappush(fullest, (level[other], other))
        changed = sorted(self._changed, key=attrgetter("order"))
        self._changed.clear()
        return changed

    def _limit(self, share: Share) -> bool:
        """Give a share the rate that its links allow now; return whether the rate has changed."""
        rate = share.lowest if share.lowest < share.limit else share.limit
        if rate == share.fair:
            return False
        share.fair = rate
        self._changed.add(share)
        return True

    def _moved(self, share: Share, link: int, old: float, new: float) -> None:
        """Update a share after the level of one of its links has changed."""
        if link == share.narrowest:
            if new <= share.second:
                share.lowest = new
            else:
                self._look(share)
        elif new < share.lowest:
            share.narrowest, share.lowest, share.second = link, new, share.lowest
        elif new <= share.second:
            share.second = new
        elif old == share.second:
            self._look(share)

    def _look(self, share: Share) -> None:
        """Find the lowest levels of a share's links."""
        level, narrowest, lowest, second = self._level, -1, inf, inf
        for link, _ in share.loads:
            if (link_level := level[link]) < lowest:
                narrowest, lowest, second = link, link_level, lowest
            elif link_level < second:
                second = link_level
        share.narrowest, share.lowest, share.second = narrowest, lowest, second

    def _full_at(self, link: int) -> float:
        """The level at which a link is full, given the levels of the other links; infinite if it is
        not full.

        Newton's method: demand is concave in the level, so all steps except the first go up.
        """
        capacity, x = self.capacity[link], self._level[link]
        limits = [(share.below(link), load, share) for share, load in self.on[link].items()]
        up = x == inf
        if up:
            x = 0.0
        while True:
            fixed = free = 0.0
            for limit, load, share in limits:
                if limit < x:
                    needed, flows = share.demand(limit)
                    fixed += load * (needed + flows * limit)
                else:
                    needed, flows = share.demand(x)
                    fixed += load * needed
                    free += load * flows
            if free:
                new = max((capacity - fixed) / free, 0.0)
                if new == x or (up and new < x):
                    return new
                x, up = new, True
            elif up or fixed <= capacity:
                return inf
            else:
                x, up = 0.0, True
