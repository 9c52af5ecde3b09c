"""Timing a call: on the host's clock where calls block, by device events where they do not."""

import time
from collections.abc import Callable, Sequence
from statistics import median, quantiles
from typing import Any, NamedTuple, Protocol

Call = Callable[[], Any]

LEAST, MOST = 5, 50  # repetitions
BUDGET = 0.03  # seconds that the repetitions of one kernel may take, once there are enough


class Timing(NamedTuple):
    """Median seconds and the interquartile range over it."""

    seconds: float
    spread: float


class Clock(Protocol):
    """Times calls on one device."""

    device: str

    def time(self, calls: Sequence[Call]) -> Timing:
        """The time of one call; `calls` are the same on different inputs, taken in turn."""
        ...


UNSTEADY, TRIES = 0.2, 3  # a timing that spreads more is taken again, so often at most


class HostClock:
    """For a CPU: a call has done its work when it returns.

    Other processes on the machine only ever make a kernel slower, so of several timings that
    spread widely the quickest stands.
    """

    device = "cpu"

    def time(self, calls: Sequence[Call]) -> Timing:
        for call in calls:
            call()
        best = self._once(calls)
        for _ in range(TRIES - 1):
            if best.spread <= UNSTEADY:
                break
            best = min(best, self._once(calls))
        return best

    def _once(self, calls: Sequence[Call]) -> Timing:
        found: list[float] = []
        while len(found) < LEAST or (sum(found) < BUDGET and len(found) < MOST):
            call = calls[len(found) % len(calls)]
            began = time.perf_counter()
            call()
            found.append(time.perf_counter() - began)
        return summary(found)


class EventClock:
    """For a CUDA device: the time between two events on its stream, of several calls in a row so
    that the events themselves do not count."""

    device = "cuda"

    def time(self, calls: Sequence[Call]) -> Timing:
        once = self._laps(calls, repeats=len(calls), each=1)
        typical = max(median(once), 1e-6)
        each = max(1, min(32, round(200e-6 / typical)))
        repeats = max(LEAST, min(MOST, round(BUDGET / (typical * each))))
        return summary(self._laps(calls, repeats, each))

    def _laps(self, calls: Sequence[Call], repeats: int, each: int) -> list[float]:
        """Seconds of a call, `repeats` times the mean of `each` in a row."""
        import torch

        events: Any = [
            [torch.cuda.Event(enable_timing=True) for _ in range(2)]  # type: ignore[no-untyped-call, unused-ignore]
            for _ in range(repeats)
        ]
        for number, (start, stop) in enumerate(events):
            start.record()
            for step in range(each):
                calls[(number * each + step) % len(calls)]()
            stop.record()
        torch.cuda.synchronize()
        return [start.elapsed_time(stop) / 1e3 / each for start, stop in events]


def summary(times: Sequence[float]) -> Timing:
    """Median, and interquartile range over the median.

    >>> summary([1.0, 2.0, 3.0, 4.0, 5.0])
    Timing(seconds=3.0, spread=1.0)
    """
    middle = median(times)
    low, _, high = quantiles(times, n=4)
    return Timing(middle, (high - low) / middle)
