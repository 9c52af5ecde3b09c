"""A barrier: each round waits for the values of all workers and then acts on them."""

from collections.abc import Callable, Iterable
from math import inf
from typing import Any

from sim.engine.live_cluster import Event, LiveCluster, Process


class Exchange(Event):
    """An event for which a worker waits. From `reached`, when its own bytes have arrived, to
    `complete`, the worker waits for other workers. The rest of the time, bytes move.

    A collective is complete when all members have joined it, a message when it has been sent.
    """

    reached: float = -inf
    complete: float = inf

    def waiting(self, start: float, end: float) -> float:
        """How much of the time from `start` to `end` is spent waiting for other workers (s)."""
        return max(0.0, min(end, self.complete) - max(start, self.reached))


Action = Callable[[Any, dict[int, Any]], Process]


class Barrier:
    """Rounds in which every member brings a value; all members get the result of `act(key,
    values)`.

    Rounds run one after the other, as collectives on one stream do. A host takes `launch` seconds
    to launch a round, while earlier rounds still run. Rounds no longer wait for a member that has
    left.
    """

    def __init__(self, cluster: LiveCluster, members: Iterable[int], act: Action) -> None:
        self.cluster, self.members, self._act = cluster, set(members), act
        self._open: dict[Any, dict[int, Any]] = {}
        self._answers: dict[Any, Exchange] = {}
        self._last: Event | None = None
        self.launch, self._launched = 0.0, 0.0

    def join(self, rank: int, key: Any, value: Any) -> Exchange:
        """Bring a member's value to a round; the returned exchange fires with its result."""
        values = self._open.setdefault(key, {})
        values[rank] = value
        answer = self._answers.setdefault(key, Exchange(self.cluster.env))
        self._begin_if_complete(key)
        return answer

    def leave(self, rank: int) -> None:
        self.members.discard(rank)
        for key in list(self._open):
            self._begin_if_complete(key)

    def _begin_if_complete(self, key: Any) -> None:
        if self.members and self.members <= self._open[key].keys():
            self._launched = max(self._launched, self.cluster.now) + self.launch
            values, answer = self._open.pop(key), self._answers.pop(key)
            answer.complete = self.cluster.now
            act = self._act(key, values)
            self._last = self.cluster.start(self._round(act, answer, self._last, self._launched))

    def _round(
        self, act: Process, answer: Exchange, before: Event | None, launched: float
    ) -> Process:
        if before is not None and not before.processed:
            yield before
        if launched > self.cluster.now:
            yield self.cluster.sleep(launched - self.cluster.now)
        answer.succeed((yield from act))
