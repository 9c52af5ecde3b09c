"""Laps of a training step: on the host's clock, or between events on a GPU's stream."""

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any


class Stopwatch:
    """Adds up the time to each mark since the mark before, by name.

    `stamp` notes a moment, `between` gives the seconds from one to another.

    >>> ticks = iter([0.0, 1.0, 3.0, 3.5])
    >>> watch = Stopwatch(lambda: next(ticks), lambda a, b: b - a)
    >>> for name in ("start", "forward", "backward", "forward"):
    ...     watch.mark(name)
    >>> watch.laps()
    {'forward': 1.5, 'backward': 2.0}
    """

    def __init__(self, stamp: Callable[[], Any], between: Callable[[Any, Any], float]) -> None:
        self._stamp, self._between = stamp, between
        self._marks: list[tuple[str, Any]] = []

    def mark(self, name: str) -> None:
        self._marks.append((name, self._stamp()))

    def laps(self) -> dict[str, float]:
        """Seconds by name since the first mark; the watch is then set back."""
        found: dict[str, float] = {}
        marks, self._marks = self._marks, []
        for (_, before), (name, after) in pairwise(marks):
            found[name] = found.get(name, 0.0) + self._between(before, after)
        return found


def on_host() -> Stopwatch:
    """The host's clock; right where every call returns when its work is done, as on CPUs."""
    return Stopwatch(time.perf_counter, lambda before, after: after - before)


def on_gpu() -> Stopwatch:
    """Events on the current stream of the current device; reading them waits for the last one."""
    import torch

    def stamp() -> Any:
        event: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call, unused-ignore]
        event.record()
        return event

    def between(before: Any, after: Any) -> float:
        after.synchronize()
        return float(before.elapsed_time(after)) / 1e3

    return Stopwatch(stamp, between)
