"""The bytes that tensors hold, and the most that they take at once."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def counted(held: Callable[[], float], device: str) -> Iterator[list[float]]:
    """The most bytes that tensors take at once within; the list has them afterwards.

    On a GPU the caching allocator's own count, `torch.cuda.max_memory_allocated`. On a CPU torch's
    profiler counts allocations from here on; `held` says how many bytes were allocated before.
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
    """The profiler's C++ writes warnings about memory that was allocated before."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def highest_sum(changes: list[int]) -> int:
    """The highest running sum, at least zero.

    >>> highest_sum([5, -5, 3, 4, -7])
    7
    """
    now = most = 0
    for change in changes:
        now += change
        most = max(most, now)
    return most


def _allocations(profiler: Any) -> list[int]:
    """Bytes allocated (or freed, negative), in order of time."""
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    return [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]


def bytes_of(tensors: Iterable[Any]) -> float:
    """Bytes of tensors; storage that several share counts once.

    >>> import pytest; torch = pytest.importorskip("torch")
    >>> x = torch.zeros(10)
    >>> bytes_of([x, x[:5], torch.zeros(2)])
    48.0
    """
    sizes = {}
    for tensor in tensors:
        here = tensor.to_local() if hasattr(tensor, "to_local") else tensor  # its shard, of FSDP
        storage = here.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
    return float(sum(sizes.values()))
