"""A GPU that is not there, for our own code: what it runs takes as long as a device's file says.

Tensors on "cuda" have no content (`jobs.capturing`), streams and events have a clock each, the host
has one, too, which is what `time.perf_counter` answers with meanwhile. A kernel begins when its
stream and the host have come to it. CUDA graphs are stand-ins: what is captured is noted, and
waiting for the device meanwhile is an error, as on a real one.
"""

import math
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sim.hardware import device as devices
from sim.hardware.kernels.time import kernel_time
from sim.jobs.capturing.exchange import Exchange
from sim.jobs.capturing.log import Log
from sim.jobs.capturing.patches import Patches
from sim.jobs.capturing.world import CapturedRank, fake_world
from sim.jobs.recorded.allocator import CachingAllocator, OutOfMemoryError
from sim.jobs.recorded.kernels import kernel_of
from sim.jobs.recorded.recording import EventKind
from sim.model.experts.routing import Routing

DEVICE = devices.load("h100-80gb-sxm")
LAUNCH = 4e-6  # seconds of the host for a kernel
GENERATIONS = {"flash": "flash2", "cudnn": "cudnn", "efficient": "flash1"}  # of DEVICE
LATENCY, BANDWIDTH = 10e-6, 400e9  # of any collective


class Clock(Log):
    """A log whose events take time."""

    def __init__(self, torch: Any, capacity: float) -> None:
        super().__init__()
        self.torch, self.host, self.began = torch, 0.0, True
        self.ready: defaultdict[int, float] = defaultdict(float)  # by stream
        self.marks: dict[int, float] = {}
        self.captured: list[float] | None = None
        self.allocator, self.highest = CachingAllocator(capacity=capacity), 0
        self.kernels: defaultdict[str, int] = defaultdict(int)

    def add(self, kind: EventKind, stream: int, **rest: Any) -> None:
        number = self.stream(stream)
        if kind == "kernel":
            operator = self.operators.entries[rest["operator"]]
            self.kernels[operator.name] += 1
            self.runs(number, seconds_of(operator), LAUNCH)
        elif kind == "collective":
            self.runs(number, LATENCY + rest["bytes"] / BANDWIDTH, LAUNCH)
        elif kind == "record":
            self.marks[rest["mark"]] = max(self.ready[number], self.host)
        elif kind == "wait":
            self.ready[number] = max(self.ready[number], self.marks.get(rest["mark"], 0.0))
        elif kind == "sync":
            if self.captured is not None:
                raise RuntimeError("operation not permitted when stream is capturing")
            until = self.marks.get(rest.get("mark", 0), max(self.ready.values(), default=0.0))
            self.host = max(self.host, until)

    def runs(self, stream: int, seconds: float, launch: float) -> None:
        """Something runs on a stream, once host and stream have come to it."""
        if self.captured is not None:
            self.captured.append(seconds)
            return
        self.host += launch
        self.ready[stream] = max(self.ready[stream], self.host) + seconds

    def now(self) -> float:
        """The host's clock: asking takes a moment."""
        self.host += 1e-8
        return self.host

    def passed(self, mark: int) -> bool:
        return self.marks.get(mark, 0.0) <= self.host

    def milliseconds(self, first: int, last: int) -> float:
        return 1e3 * (self.marks[last] - self.marks[first])

    def emptied(self) -> None:
        self.allocator.empty()

    def _row(self, block: int, size: int, stream: int, line: int, again: bool = False) -> None:
        if not size:
            return self.allocator.give(block)
        try:
            self.allocator.take(block, size, stream)
        except OutOfMemoryError:
            raise self.torch.OutOfMemoryError(f"CUDA out of memory. Tried {size:,} B") from None
        self.highest = max(self.highest, self.allocator.allocated)


def seconds_of(operator: Any) -> float:
    """A kernel's seconds by the device's file; attention by the generation that was called."""
    kernel = kernel_of(operator)
    offered = tuple(own for word, own in GENERATIONS.items() if word in operator.name)
    return kernel_time(kernel, DEVICE, offered or ("flash2",))


@contextmanager
def fake_gpu(world: int = 1, rank: int = 0) -> Iterator[Clock]:
    """Code within has a GPU; of several it has one, as a process that torchrun has started."""
    import torch

    clock = Clock(torch, capacity=DEVICE.usable_memory)
    place = CapturedRank(
        world=world,
        rank=rank,
        folder="-",
        exchange=Exchange(),
        routing=Routing(),
        device=DEVICE,
    )
    patches = Patches()
    with fake_world(torch, clock, place):
        if world == 1:
            del os.environ["RANK"]
        try:
            _install(torch, patches, clock)
            yield clock
        finally:
            patches.restore()


def _install(torch: Any, patches: Patches, clock: Clock) -> None:
    """What a script that is captured has no use for: time, memory, graphs."""

    def reset(*_: Any) -> None:
        clock.highest = clock.allocator.allocated

    patches.set(time, "perf_counter", clock.now)
    patches.set(torch.cuda, "max_memory_allocated", lambda *_: clock.highest)
    patches.set(torch.cuda, "reset_peak_memory_stats", reset)
    patches.set(torch.cuda, "CUDAGraph", type("CUDAGraph", (Graph,), {"clock": clock}))
    patches.set(torch._C, "_host_emptyCache", lambda: None)  # of builds with CUDA
    patches.set(torch.version, "cuda", "13.0")
    patches.set(torch.distributed, "get_backend", lambda *_: "nccl")
    for name in _CALLS:
        if hasattr(torch.distributed, name):
            patches.set(torch.distributed, name, _of_nccl(torch, getattr(torch.distributed, name)))


_CALLS = ("all_reduce", "all_gather_into_tensor", "all_gather_single", "reduce_scatter_tensor")
_CALLS += ("reduce_scatter_single", "broadcast", "reduce", "all_to_all_single", "send", "recv")


def _of_nccl(torch: Any, call: Any) -> Any:
    """A collective that refuses tensors of the host, as NCCL's does."""

    def checked(*args: Any, **kwargs: Any) -> Any:
        for one in (*args, *kwargs.values()):
            if isinstance(one, torch.Tensor) and one.device.type == "cpu":
                raise RuntimeError("No backend type associated with device type cpu")
        return call(*args, **kwargs)

    return checked


class Graph:
    """torch.cuda.CUDAGraph: the seconds of what was captured."""

    clock: Clock

    def capture_begin(self, *_: Any, **__: Any) -> None:
        self.clock.captured = []

    def capture_end(self) -> None:
        self.seconds = math.fsum(self.clock.captured or ())
        self.clock.captured = None

    def replay(self) -> None:
        import torch

        stream = self.clock.stream(torch.cuda.current_stream().stream_id)
        self.clock.runs(stream, self.seconds, LAUNCH)
