"""Launch costs: the host's seconds, an empty kernel's round trip, and a CUDA graph's node."""

import time
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Any

from sim.analysis.calibration.timing.clock import Call, Clock
from sim.hardware.kernels.environment import CopyKind, CopyTime, LaunchTimes

# CUDA's queue holds 1024 launches; with more the host would wait for the device.
LAUNCHES = 500
REPEATS = 9

MIB = 2**20
SIZES = (64 * 2**10, MIB, 16 * MIB, 256 * MIB)


def launches(device: str) -> LaunchTimes:
    """Measure launches with the smallest kernel: adding one to a single number."""
    import torch

    number = torch.zeros(1, device=device)
    replay = _graph(number) if device == "cuda" else None
    return launch_costs(lambda: number.add_(1), wait_of(device), replay)


def launch_costs(kernel: Call, wait: Call, replay: Call | None) -> LaunchTimes:
    """Return the costs of launching `kernel`. `wait` returns when the device is idle; `replay` runs
    a graph of `LAUNCHES` such kernels."""
    for _ in range(LAUNCHES):
        kernel()
    wait()
    return LaunchTimes(
        issue=median(_seconds_per_launch(kernel, wait) for _ in range(REPEATS)),
        latency=median(_round_trip(kernel, wait) for _ in range(LAUNCHES)),
        node=_seconds_per_node(replay, wait) if replay else 0.0,
    )


def _seconds_per_launch(kernel: Call, wait: Call) -> float:
    """Return the host's seconds per launch while the queue has room."""
    began = time.perf_counter()
    for _ in range(LAUNCHES):
        kernel()
    spent = time.perf_counter() - began
    wait()
    return spent / LAUNCHES


def _round_trip(call: Call, wait: Call) -> float:
    began = time.perf_counter()
    call()
    wait()
    return time.perf_counter() - began


def _seconds_per_node(replay: Call, wait: Call) -> float:
    """Return the seconds per node of a graph, including 1/500 of the round trip of a launch."""
    replay()
    wait()
    return median(_round_trip(replay, wait) for _ in range(REPEATS)) / LAUNCHES


def wait_of(device: str) -> Call:
    """Return a function that returns when the device is idle."""
    import torch

    return torch.cuda.synchronize if device == "cuda" else lambda: None


def _graph(number: Any) -> Call:
    import torch

    number.add_(1)  # CUDA loads a kernel when it is first launched, which a capture forbids
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(LAUNCHES):
            number.add_(1)
    replay: Call = graph.replay
    return replay


def copies(
    clock: Clock,
    sizes: Sequence[int] = SIZES,
    note: Callable[[str], None] = lambda message: None,
) -> Iterator[CopyTime]:
    """Yield the times of each kind of copy that the device has. A copy that does not fit into
    memory is left out and noted."""
    for kind, pinned in copy_kinds(clock.device):
        for size in sizes:
            try:
                call = _copy(kind, pinned, size, clock.device)
                seconds = clock.time([call]).seconds
            except (RuntimeError, MemoryError) as error:
                note(f"left out a copy {kind} of {size:,} B: {str(error).partition(chr(10))[0]}")
                break
            yield CopyTime(kind=kind, pinned=pinned, bytes=float(size), time=seconds)


def copy_kinds(device: str) -> tuple[tuple[CopyKind, bool], ...]:
    """Return the kinds of copies, each with whether the host's memory is page-locked.

    >>> copy_kinds("cpu")
    (('device to device', False),)
    """
    within: tuple[tuple[CopyKind, bool], ...] = (("device to device", False),)
    if device != "cuda":
        return within
    across: tuple[CopyKind, ...] = ("host to device", "device to host")
    return (*((kind, pinned) for kind in across for pinned in (True, False)), *within)


def _copy(kind: CopyKind, pinned: bool, size: int, device: str) -> Call:
    import torch

    def numbers(where: str) -> Any:
        tensor = torch.randint(256, (size,), dtype=torch.uint8, device=where)
        return tensor.pin_memory() if pinned and where == "cpu" else tensor

    source = numbers("cpu" if kind == "host to device" else device)
    target = numbers("cpu" if kind == "device to host" else device)
    return lambda: target.copy_(source, non_blocking=pinned)
