"""Timing a call: on the host's clock where calls block, by device events where they do not."""

import time
from collections.abc import Callable, Sequence
from statistics import median, quantiles
from typing import Any, NamedTuple, Protocol

Call = Callable[[], Any]

LEAST, MOST = 5, 50  # repetitions
BUDGET = 0.03  # seconds for the repetitions of one kernel, once there are enough of them
UNSTEADY, TRIES = 0.2, 3  # a timing that spreads more is repeated, up to this many times in all


class Timing(NamedTuple):
    """Median seconds and the interquartile range over it."""

    seconds: float
    spread: float


class Clock(Protocol):
    """Times calls on one device."""

    device: str

    def time(self, calls: Sequence[Call]) -> Timing:
        """The time of one call; `calls` do the same on different inputs and are used in turn."""
        ...


class HostClock:
    """For a CPU: a call has done its work when it returns.

    Other processes on the machine only ever make a kernel slower, so of several timings that
    spread widely the quickest is taken.
    """

    device = "cpu"

    def time(self, calls: Sequence[Call]) -> Timing:
        for call in calls:
            call()
        best = self._repeated(calls)
        for _ in range(TRIES - 1):
            if best.spread <= UNSTEADY:
                break
            best = min(best, self._repeated(calls))
        return best

    def _repeated(self, calls: Sequence[Call]) -> Timing:
        times: list[float] = []
        while len(times) < LEAST or (sum(times) < BUDGET and len(times) < MOST):
            call = calls[len(times) % len(calls)]
            began = time.perf_counter()
            call()
            times.append(time.perf_counter() - began)
        return summary(times)


class EventClock:
    """For a CUDA device: the time between two events on its stream, with several calls between
    them so that the events themselves do not count."""

    device = "cuda"

    def time(self, calls: Sequence[Call]) -> Timing:
        first = self._seconds_per_call(calls, repeats=len(calls), in_a_row=1)
        typical = max(median(first), 1e-6)
        in_a_row = max(1, min(32, round(200e-6 / typical)))
        repeats = max(LEAST, min(MOST, round(BUDGET / (typical * in_a_row))))
        return summary(self._seconds_per_call(calls, repeats, in_a_row))

    def _seconds_per_call(self, calls: Sequence[Call], repeats: int, in_a_row: int) -> list[float]:
        """For each repetition the mean of `in_a_row` calls."""
        import torch

        events: Any = [
            [torch.cuda.Event(enable_timing=True) for _ in range(2)]  # type: ignore[no-untyped-call, unused-ignore]
            for _ in range(repeats)
        ]
        for number, (start, stop) in enumerate(events):
            start.record()
            for step in range(in_a_row):
                calls[(number * in_a_row + step) % len(calls)]()
            stop.record()
        torch.cuda.synchronize()
        return [start.elapsed_time(stop) / 1e3 / in_a_row for start, stop in events]


def clock_of(device: str) -> Clock:
    return EventClock() if device == "cuda" else HostClock()


def summary(times: Sequence[float]) -> Timing:
    """Median, and interquartile range over the median.

    >>> summary([1.0, 2.0, 3.0, 4.0, 5.0])
    Timing(seconds=3.0, spread=1.0)
    """
    middle = median(times)
    low, _, high = quantiles(times, n=4)
    return Timing(middle, (high - low) / middle)
