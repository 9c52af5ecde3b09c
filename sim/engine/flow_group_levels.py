"""Max-min fair levels of groups that share links, by progressive filling."""

from collections.abc import Collection, Sequence
from heapq import heapify, heappop, heappush
from math import nextafter

from sim.engine.flow_groups import UNBOUNDED, FlowGroup

_EPSILON = 1e-12


def levels(groups: Collection[FlowGroup], capacities: Sequence[float]) -> dict[FlowGroup, float]:
    """The level (B/s) of each group, to which its cut is moved: the lowest link first.

    A link is full at the level x where the groups on it that have none yet need what the others
    leave: sum_k load_k (fixed_k(x) + free_k(x) x) = left. x is at least left / sum_k load_k size_k
    and only rises while groups get theirs elsewhere, so a heap of such bounds finds the lowest.
    """
    if len(groups) == 1:
        (group,) = groups
        return {group: _alone(group, capacities)}
    filling = _Filling(groups, capacities)
    bounds = filling.bounds()
    while bounds:
        _, link = heappop(bounds)
        if not (waiting := filling.waiting(link)):
            continue
        limit = bounds[0][0] * (1.0 + _EPSILON) if bounds else UNBOUNDED
        level = filling.bound(link)
        if level <= limit:
            level = _full(filling.left[link], waiting)
        if limit < level < UNBOUNDED:
            heappush(bounds, (level, link))
        elif level < UNBOUNDED:
            for group, _ in waiting:
                filling.freeze(group, level)
    return filling.found()


def _alone(group: FlowGroup, capacities: Sequence[float]) -> float:
    """The same where nobody else is on its links."""
    level = UNBOUNDED
    if group.loads:
        level = _full(min([capacities[link] / load for link, load in group.loads]), [(group, 1.0)])
    group.move(level)
    return level


class _Filling:
    """What is left of every link while groups get their levels."""

    def __init__(self, groups: Collection[FlowGroup], capacities: Sequence[float]) -> None:
        self._groups = groups
        self._levels: dict[FlowGroup, float] = {}
        self._on: dict[int, list[tuple[FlowGroup, float]]] = {}
        for group in self._groups:
            for item in group.loads:
                self._on.setdefault(item[0], []).append((group, item[1]))
        self.left = {link: capacities[link] for link in self._on}
        self._demand = {
            link: sum([load * group.size for group, load in on]) for link, on in self._on.items()
        }

    def bounds(self) -> list[tuple[float, int]]:
        """All links that may be the lowest: of those that a group has to itself, one."""
        lowest: dict[FlowGroup, tuple[float, int]] = {}
        bounds = []
        for link, on in self._on.items():
            bound = self.bound(link), link
            if len(on) > 1:
                bounds.append(bound)
            elif on[0][0] not in lowest or bound < lowest[on[0][0]]:
                lowest[on[0][0]] = bound
        bounds += lowest.values()
        heapify(bounds)
        return bounds

    def bound(self, link: int) -> float:
        """Where the link would be full if nobody's own limit were lower."""
        return self.left[link] / self._demand[link]

    def waiting(self, link: int) -> list[tuple[FlowGroup, float]]:
        """The groups on a link that have no level yet, each with its load."""
        return [on for on in self._on[link] if on[0] not in self._levels]

    def freeze(self, group: FlowGroup, level: float) -> None:
        self._levels[group] = level
        group.move(level)
        taken = group.taken(level)
        for link, load in group.loads:
            self.left[link] = max(self.left[link] - load * taken, 0.0)
            self._demand[link] -= load * group.size

    def found(self) -> dict[FlowGroup, float]:
        for group in self._groups:
            if group not in self._levels:
                self._levels[group] = UNBOUNDED
                group.move(UNBOUNDED)
        return self._levels


def _full(left: float, waiting: list[tuple[FlowGroup, float]]) -> float:
    """The level at which groups of these loads fill a link, to which their cuts are moved, by
    Newton's steps: what groups need is concave in their level, so all steps but the first lead up.
    """
    back = True
    while True:
        fixed = free = 0.0
        for group, load in waiting:
            fixed += load * group.fixed
            free += load * group.free
        if free:
            level = max((left - fixed) / free, 0.0)
        elif fixed <= left or not back:
            return UNBOUNDED
        else:
            level = nextafter(max(group.classes[-1][0] for group, _ in waiting), 0.0)
        moved = [group.move(level, back=back) for group, _ in waiting]
        if free:
            if not any(moved):
                return level
            back = False
