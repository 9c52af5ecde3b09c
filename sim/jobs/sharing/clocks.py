"""Clocks of stale synchronous training: how far every worker is (Ho et al. 2013)."""

from collections import Counter
from collections.abc import Iterable

from sim.engine.live_cluster import Event, LiveCluster


class Clocks:
    """How many steps each worker has done; the slowest holds back the others."""

    def __init__(self, cluster: LiveCluster, members: Iterable[int]) -> None:
        self.cluster = cluster
        self._steps = dict.fromkeys(members, 0)
        self._workers_at = Counter(self._steps.values())
        self.slowest = 0
        self._waiting: dict[int, Event] = {}

    def tick(self, rank: int) -> None:
        """A worker has done one more step."""
        self._workers_at[self._steps[rank]] -= 1
        self._steps[rank] += 1
        self._workers_at[self._steps[rank]] += 1
        self._advance()

    def leave(self, rank: int) -> None:
        self._workers_at[self._steps.pop(rank)] -= 1
        self._advance()

    def reach(self, steps: int) -> Event:
        """Fires when even the slowest has done so many steps."""
        if self.slowest >= steps:
            event = self.cluster.event()
            event.succeed()
            return event
        return self._waiting.setdefault(steps, self.cluster.event())

    def _advance(self) -> None:
        while self._steps and not self._workers_at[self.slowest]:
            self.slowest += 1
        for steps in [steps for steps in self._waiting if steps <= self.slowest]:
            self._waiting.pop(steps).succeed()
