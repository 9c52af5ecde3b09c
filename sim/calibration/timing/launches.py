"""What launching costs: the host's seconds, an empty kernel's round trip, a graph's node."""

import time
from collections.abc import Callable
from statistics import median
from typing import Any

from sim.hardware.kernels.environment import LaunchTimes

Call = Callable[[], Any]

# CUDA's queue holds 1024 launches, behind which the host would wait for the device.
LAUNCHES = 500
ROUNDS = 9


def launches(device: str) -> LaunchTimes:
    """Measured with the smallest kernel there is: adding one to one number."""
    import torch

    one = torch.zeros(1, device=device)
    return measured(lambda: one.add_(1), _wait(device), _graph(one) if device == "cuda" else None)


def measured(kernel: Call, wait: Call, replay: Call | None) -> LaunchTimes:
    """The costs of launching `kernel`; `wait` returns when the device has done all, `replay` runs
    a graph of `LAUNCHES` such kernels."""
    for _ in range(LAUNCHES):
        kernel()
    wait()
    return LaunchTimes(
        issue=median(_issued(kernel, wait) for _ in range(ROUNDS)),
        latency=median(_awaited(kernel, wait) for _ in range(LAUNCHES)),
        node=_replayed(replay, wait) if replay else 0.0,
    )


def _issued(kernel: Call, wait: Call) -> float:
    """The host's seconds per launch while the queue has room."""
    began = time.perf_counter()
    for _ in range(LAUNCHES):
        kernel()
    spent = time.perf_counter() - began
    wait()
    return spent / LAUNCHES


def _awaited(kernel: Call, wait: Call) -> float:
    began = time.perf_counter()
    kernel()
    wait()
    return time.perf_counter() - began


def _replayed(replay: Call, wait: Call) -> float:
    """Seconds per node; the round trip of one launch is a five-hundredth of it."""
    replay()
    wait()
    return median(_awaited(replay, wait) for _ in range(ROUNDS)) / LAUNCHES


def _wait(device: str) -> Call:
    import torch

    return torch.cuda.synchronize if device == "cuda" else lambda: None


def _graph(one: Any) -> Call:
    import torch

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(LAUNCHES):
            one.add_(1)
    replay: Call = graph.replay
    return replay
