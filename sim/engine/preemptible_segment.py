"""How far a computation has come whose collectives may be disturbed by other traffic.

While it is left alone its end is known beforehand. When something comes upon its links, the items
that have ended by then are counted off, and the one under way is played with the network.
"""

from sim.engine.costs import Parts
from sim.engine.folded import ComputeStep, Item
from sim.program.causes import HOST, Cause


class Progress:
    """Items so far of one computation; `ready` and `host_free` are as after the last of them."""

    def __init__(self, step: ComputeStep, ready: float, host_free: float) -> None:
        self.step, self.ready, self.host_free = step, ready, host_free
        self._began = ready
        self._place = 0
        self._lost: dict[Cause, float] = {}

    @property
    def over(self) -> bool:
        return self._place == len(self.step.items)

    @property
    def item(self) -> Item:
        """The item under way."""
        return self.step.items[self._place]

    @property
    def parts(self) -> Parts:
        """Seconds by cause, those that disturbances took included; what the device would have
        waited for its host meanwhile is no longer the host's."""
        if not self._lost:
            return self.step.cost.parts
        parts = dict(self.step.cost.parts)
        for cause, seconds in self._lost.items():
            parts[cause] = parts.get(cause, 0.0) + seconds
        hidden = sum(parts.values()) - (self.ready - self._began)
        if hidden > 0.0 and HOST in parts:
            parts[HOST] = max(parts[HOST] - hidden, 0.0)
        return parts

    def end(self) -> float:
        """When all of it ends if nothing disturbs it any more."""
        return self.item.rest.end(self.ready, self.host_free)

    def advance(self, now: float, *, whole: bool) -> None:
        """Count off the items that have ended by now, or all of them."""
        if whole:
            self.host_free = self.item.rest.launched(self.ready, self.host_free)
            self._place = len(self.step.items)
        for item in self.step.items[self._place :]:
            duration = item.cost.duration
            end = duration.end(self.ready, self.host_free)
            if end > now:
                break
            self.ready, self.host_free = end, duration.launched(self.ready, self.host_free)
            self._place += 1

    def begin(self) -> float:
        """When the traffic of the item under way begins: the host must have come this far."""
        return max(self.ready, self.host_free) if self.item.traffic else self.ready

    def passed(self, now: float) -> float:
        """How long that traffic has been under way."""
        return max(now - self.begin(), 0.0)

    def kernels_end(self) -> float:
        """When the kernels of the item under way end."""
        kernels = self.item.kernels
        if kernels is None:
            return self.begin()
        return kernels.duration.end(self.begin(), self.host_free)

    def played(self, now: float) -> None:
        """The item under way has ended now."""
        item, duration = self.item, self.item.cost.duration
        lost = now - duration.end(self.ready, self.host_free)
        if lost > 0.0 and item.traffic:
            cause = item.traffic[-1][1]
            self._lost[cause] = self._lost.get(cause, 0.0) + lost
        self.ready, self.host_free = now, duration.launched(self.ready, self.host_free)
        self._place += 1
