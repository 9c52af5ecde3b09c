"""Memory on CPUs: what a process keeps of it, and what tensors take at most."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

# glibc's <malloc.h>.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
_NEVER = 2**31 - 1


def keep_freed() -> bool:
    """Tell glibc to keep freed memory instead of giving it back; False where that is not known.

    By default every tensor above 32 MiB is mapped anew, and its pages are cleared and faulted in
    when they are first written, which takes many times as long as the kernel that writes them. So
    told, memory is reused as torch's caching allocator reuses it on GPUs.
    """
    import ctypes

    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        return bool(mallopt(_M_MMAP_MAX, 0) and mallopt(_M_TRIM_THRESHOLD, _NEVER))
    return False


def peak(step: Callable[[], Any], held: float, device: str) -> float:
    """The most bytes that tensors take at once while `step` runs.

    On a GPU the caching allocator's own count, `torch.cuda.max_memory_allocated`. On a CPU torch's
    profiler counts allocations from here on; `held` are the bytes that were allocated before.
    """
    import torch

    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        step()
        torch.cuda.synchronize()
        return float(torch.cuda.max_memory_allocated())
    from torch.profiler import ProfilerActivity, profile

    with _silence(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    return held + highest(_changes(profiler))


@contextmanager
def _silence() -> Iterator[None]:
    """Without what the profiler's C++ writes to standard error about memory of before."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def highest(changes: list[int]) -> int:
    """The highest sum on the way, at least zero.

    >>> highest([5, -5, 3, 4, -7])
    7
    """
    now = most = 0
    for change in changes:
        now += change
        most = max(most, now)
    return most


def _changes(profiler: Any) -> list[int]:
    """Bytes allocated (or freed, negative), in order of time."""
    events = [one for one in profiler.profiler.kineto_results.events() if one.name() == "[memory]"]
    return [one.nbytes() for one in sorted(events, key=lambda one: one.start_ns())]


def bytes_of(tensors: Any) -> float:
    """Bytes of tensors, of each storage once.

    >>> import pytest; torch = pytest.importorskip("torch")
    >>> x = torch.zeros(10)
    >>> bytes_of([x, x[:5], torch.zeros(2)])
    48.0
    """
    sizes = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
    return float(sum(sizes.values()))
