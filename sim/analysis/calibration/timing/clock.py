"""Time a call: on the host's clock if the call blocks, by device events if it returns early."""

import time
from collections.abc import Callable, Sequence
from statistics import median, quantiles
from typing import Any, NamedTuple, Protocol

Call = Callable[[], Any]

LEAST, MOST = 5, 50  # repetitions
BUDGET = 0.03  # seconds after which a kernel is not repeated again, once it ran `LEAST` times
UNSTEADY, TRIES = 0.2, 3  # a timing with a larger spread is repeated, up to 3 timings in all


class Timing(NamedTuple):
    """The median in seconds, and the interquartile range as a share of the median."""

    seconds: float
    spread: float


class Clock(Protocol):
    """Times calls on one device."""

    device: str

    def time(self, calls: Sequence[Call]) -> Timing:
        """Return the time of one call. All `calls` do the same work on different inputs and are
        made in turn."""
        ...


class HostClock:
    """The clock for a CPU, where a call has done its work when it returns."""

    device = "cpu"

    def time(self, calls: Sequence[Call]) -> Timing:
        for call in calls:
            call()
        return steadiest(lambda: self._repeated(calls))

    def _repeated(self, calls: Sequence[Call]) -> Timing:
        times: list[float] = []
        while len(times) < LEAST or (sum(times) < BUDGET and len(times) < MOST):
            call = calls[len(times) % len(calls)]
            began = time.perf_counter()
            call()
            times.append(time.perf_counter() - began)
        return summary(times)


class EventClock:
    """The clock for a CUDA device: the time between two events on its stream. Several calls lie
    between the events, so the events' own time is negligible."""

    device = "cuda"

    def time(self, calls: Sequence[Call]) -> Timing:
        first = self._seconds_per_call(calls, repeats=len(calls), in_a_row=1)
        typical = max(median(first), 1e-6)
        in_a_row = max(1, min(32, round(200e-6 / typical)))
        repeats = max(LEAST, min(MOST, round(BUDGET / (typical * in_a_row))))
        return summary(self._seconds_per_call(calls, repeats, in_a_row))

    def _seconds_per_call(self, calls: Sequence[Call], repeats: int, in_a_row: int) -> list[float]:
        """Return the mean seconds of a call in each repetition, which makes `in_a_row` calls."""
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


def steadiest(measured: Callable[[], Timing]) -> Timing:
    """Return the shortest of several timings, or the first if its spread is small. Other processes
    on the machine can only make a call slower."""
    best = measured()
    for _ in range(TRIES - 1):
        if best.spread <= UNSTEADY:
            break
        best = min(best, measured())
    return best


def summary(times: Sequence[float]) -> Timing:
    """Return the median, and the interquartile range over the median; 0 for a single time.

    >>> summary([1.0, 2.0, 3.0, 4.0, 5.0])
    Timing(seconds=3.0, spread=1.0)
    """
    middle = median(times)
    low, _, high = quantiles(times, n=4) if len(times) > 1 else [middle] * 3
    return Timing(middle, (high - low) / middle)
