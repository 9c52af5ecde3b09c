"""Seconds of each phase of a training step: on the host's clock, or by events on a GPU's stream."""

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any


class PhaseTimer:
    """Adds up, by name, the time from each mark to the next.

    `stamp` notes a moment, `between` gives the seconds from one moment to another.

    >>> ticks = iter([0.0, 1.0, 3.0, 3.5])
    >>> timer = PhaseTimer(lambda: next(ticks), lambda before, after: after - before)
    >>> for ended in ("start", "forward", "backward", "forward"):
    ...     timer.mark(ended)
    >>> timer.seconds()
    {'forward': 1.5, 'backward': 2.0}
    """

    def __init__(self, stamp: Callable[[], Any], between: Callable[[Any, Any], float]) -> None:
        self._stamp, self._between = stamp, between
        self._marks: list[tuple[str, Any]] = []

    def mark(self, name: str) -> None:
        """The phase of this name ends now."""
        self._marks.append((name, self._stamp()))

    def seconds(self) -> dict[str, float]:
        """Seconds by phase since the first mark; the timer is then reset."""
        by_phase: dict[str, float] = {}
        marks, self._marks = self._marks, []
        for (_, before), (name, after) in pairwise(marks):
            by_phase[name] = by_phase.get(name, 0.0) + self._between(before, after)
        return by_phase


def on_host() -> PhaseTimer:
    """The host's clock; right if every call returns when its work is done, as on CPUs."""
    return PhaseTimer(time.perf_counter, lambda before, after: after - before)


def on_gpu() -> PhaseTimer:
    """Events on the current stream of the current device; reading them waits for the last one."""
    import torch

    def stamp() -> Any:
        event: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call, unused-ignore]
        event.record()
        return event

    def between(before: Any, after: Any) -> float:
        after.synchronize()
        return float(before.elapsed_time(after)) / 1e3

    return PhaseTimer(stamp, between)
