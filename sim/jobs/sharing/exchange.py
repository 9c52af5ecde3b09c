"""What a worker waits for that others take part in: when it waits for them, and when bytes move."""

from math import inf

from sim.engine.live_cluster import Event


class Exchange(Event):
    """From `reached` to `complete` the others are waited for; before and after, bytes move.

    A collective is complete when all have joined it, a message when it has been sent.
    """

    reached: float = -inf
    complete: float = inf

    def waiting(self, start: float, end: float) -> float:
        """How much of the time between two moments is spent waiting for the others (s)."""
        return max(0.0, min(end, self.complete) - max(start, self.reached))
