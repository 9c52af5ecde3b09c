"""How much longer do kernels take while a copy or a collective runs beside them?

The other work runs on its own stream on a GPU, and in its own thread on a CPU. It starts first and
must outlast the timed kernels. If it ends too early, twice as much of the other work is started.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from math import ceil
from typing import Any, Literal, Protocol

from sim.analysis.calibration.timing.clock import Call
from sim.hardware.kernels.environment import Beside, Slowdown

LASTING = 0.03  # seconds that the timed kernels take alone
TRIES = 5


class Concurrency(Protocol):
    """Runs calls alone, and beside other work."""

    def alone(self, call: Call, count: int) -> float:
        """Return the seconds of `count` calls in a row."""
        ...

    def beside(self, call: Call, count: int, other: Call, others: int) -> float | None:
        """Return the seconds of `count` calls beside `others` calls of `other`; None if the latter
        end first."""
        ...


def slowdown(concurrency: Concurrency, call: Call, other: Call) -> float | None:
    """Return the seconds of a call beside the other work, divided by its seconds alone. Return None
    if the other work always ends too early. Both kinds of work first run alone, to warm up.
    """
    per_call, per_other = (
        min(concurrency.alone(work, 3), concurrency.alone(work, 3)) / 3 for work in (call, other)
    )
    count = max(3, ceil(LASTING / per_call))
    alone = concurrency.alone(call, count)
    others = ceil(2.0 * alone / per_other)
    for _ in range(TRIES):
        beside = concurrency.beside(call, count, other, others)
        if beside is not None:
            return beside / alone
        others *= 2
    return None


class Threads:
    """The concurrency of a CPU. The other work continues until the timed calls have ended."""

    def alone(self, call: Call, count: int) -> float:
        began = time.perf_counter()
        for _ in range(count):
            call()
        return time.perf_counter() - began

    def beside(self, call: Call, count: int, other: Call, others: int) -> float | None:
        ended = threading.Event()

        def work() -> None:
            while not ended.is_set():
                other()

        thread = threading.Thread(target=work)
        thread.start()
        try:
            return self.alone(call, count)
        finally:
            ended.set()
            thread.join()


class Streams:
    """The concurrency of a CUDA device: two streams, with events on both."""

    def __init__(self) -> None:
        import torch

        self.cuda: Any = torch.cuda
        self.side = self.cuda.Stream()

    def alone(self, call: Call, count: int) -> float:
        self.cuda.synchronize()
        start, stop = self._timed(call, count)
        stop.synchronize()
        return float(start.elapsed_time(stop)) / 1e3

    def beside(self, call: Call, count: int, other: Call, others: int) -> float | None:
        self.cuda.synchronize()
        with self.cuda.stream(self.side):
            for _ in range(others):
                other()
            last = self.cuda.Event()
            last.record()
        start, stop = self._timed(call, count)
        stop.synchronize()
        lasted = not last.query()
        self.cuda.synchronize()
        return float(start.elapsed_time(stop)) / 1e3 if lasted else None

    def _timed(self, call: Call, count: int) -> tuple[Any, Any]:
        start, stop = (self.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(count):
            call()
        stop.record()
        return start, stop


def slowdowns(device: str) -> Iterator[Slowdown]:
    """Yield the slowdown of a product and of a memory-bound kernel beside a copy, and beside an
    all-reduce if this process is one of several ranks."""
    concurrency: Concurrency = Streams() if device == "cuda" else Threads()
    kernels = _kernels(device)
    for beside, other in _other_work(device):
        for kernel, call in kernels:
            factor = slowdown(concurrency, call, other)
            if factor is not None:
                yield Slowdown(kernel=kernel, beside=beside, slowdown=factor)


def _kernels(device: str) -> Sequence[tuple[Literal["gemm", "stream"], Call]]:
    import torch

    side = 4096 if device == "cuda" else 512
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    a, b = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    size = 2**27 if device == "cuda" else 2**22
    x, y = (torch.randn(size, device=device, dtype=dtype) for _ in range(2))
    product, total = torch.empty_like(a), torch.empty_like(x)
    return (
        ("gemm", lambda: torch.mm(a, b, out=product)),
        ("stream", lambda: torch.add(x, y, out=total)),
    )


def _other_work(device: str) -> Iterator[tuple[Beside, Call]]:
    import torch
    import torch.distributed as dist

    size = 2**28 if device == "cuda" else 2**24
    source = torch.randint(256, (size,), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    yield "copy", lambda: target.copy_(source)
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        numbers = torch.zeros(2**24, device=device)
        yield "all_reduce", lambda: dist.all_reduce(numbers)
