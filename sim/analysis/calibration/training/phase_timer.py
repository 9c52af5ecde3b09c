"""Seconds of each phase of a training step: on the host's clock, or by events on a GPU's stream.

The module also counts the bytes that tensors hold, and their peak.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any


class PhaseTimer:
    """Adds up, by name, the time from each mark to the next.

    `stamp` records a moment; `between` returns the seconds from one moment to another.

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
        """End the phase of this name now."""
        self._marks.append((name, self._stamp()))

    def seconds(self) -> dict[str, float]:
        """Return seconds by phase since the first mark, and reset the timer."""
        by_phase: dict[str, float] = {}
        marks, self._marks = self._marks, []
        for (_, before), (name, after) in pairwise(marks):
            by_phase[name] = by_phase.get(name, 0.0) + self._between(before, after)
        return by_phase


def on_host() -> PhaseTimer:
    """Return a timer on the host's clock, for calls that return when their work is done (CPUs)."""
    return PhaseTimer(time.perf_counter, lambda before, after: after - before)


def on_gpu() -> PhaseTimer:
    """Return a timer by events on the current stream. Reading it waits for the last event."""
    import torch

    def stamp() -> Any:
        event: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call, unused-ignore]
        event.record()
        return event

    def between(before: Any, after: Any) -> float:
        after.synchronize()
        return float(before.elapsed_time(after)) / 1e3

    return PhaseTimer(stamp, between)


@contextmanager
def counted(held: Callable[[], float], device: str) -> Iterator[list[float]]:
    """Yield a list. After the `with` block, it has the most bytes that tensors held at once inside.

    On a GPU, this is the caching allocator's own count, `torch.cuda.max_memory_allocated`. On a
    CPU, torch's profiler counts allocations within the block, and `held` returns the bytes that
    tensors hold before the block.
    """
    import torch

    found = [0.0]
    if device == "cuda":
        yield found
        torch.cuda.synchronize()
        found[0] = float(torch.cuda.max_memory_allocated())
        return
    from torch.profiler import ProfilerActivity, profile

    before = held()
    with (
        _standard_error_discarded(),
        profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler,
    ):
        yield found
    found[0] = before + highest_sum(_allocations(profiler))


@contextmanager
def _standard_error_discarded() -> Iterator[None]:
    """Discard standard error: the profiler's C++ warns of memory that was allocated before."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def highest_sum(changes: list[int]) -> int:
    """Return the highest running sum, at least zero.

    >>> highest_sum([5, -5, 3, 4, -7])
    7
    """
    now = most = 0
    for change in changes:
        now += change
        most = max(most, now)
    return most


def _allocations(profiler: Any) -> list[int]:
    """Return the bytes allocated (or freed, negative), in order of time."""
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    return [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]


def bytes_of(tensors: Iterable[Any]) -> float:
    """Return the bytes of tensors; storage that several tensors share counts once.

    >>> import pytest; torch = pytest.importorskip("torch")
    >>> x = torch.zeros(10)
    >>> bytes_of([x, x[:5], torch.zeros(2)])
    48.0
    """
    sizes = {}
    for tensor in tensors:
        here = tensor.to_local() if hasattr(tensor, "to_local") else tensor  # FSDP's local shard
        storage = here.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
    return float(sum(sizes.values()))
