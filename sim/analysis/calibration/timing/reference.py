"""Reference work that shows how fast the machine is at a moment: kernels, and all-reduces."""

import time
from statistics import median

# Bytes of the all-reduces that show gloo's cost of a message and the loopback's bandwidth.
TRANSFERS = (64.0, 64 * 2.0**10, 2.0**20, 4 * 2.0**20, 25 * 2.0**20)
_REPEATS = 7


def reference_kernels(device: str) -> float:
    """Median seconds of a product of 768 x 768 matrices followed by a sum of 16 MiB."""
    import torch

    a = torch.randn(768, 768, device=device)
    b = torch.randn(2**22, device=device)
    out = torch.empty_like(b)

    def seconds() -> float:
        began = time.perf_counter()
        torch.mm(a, a)
        torch.add(b, b, out=out)
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - began

    seconds()
    return median(seconds() for _ in range(_REPEATS))


def transfers() -> tuple[tuple[float, float], ...]:
    """(bytes, median seconds) of all-reduces of each of `TRANSFERS`; call it on every rank."""
    return tuple((size, _all_reduce(size)) for size in TRANSFERS)


def _all_reduce(size: float) -> float:
    import torch
    import torch.distributed as dist

    data = torch.zeros(int(size) // 4)
    seconds = []
    for _ in range(_REPEATS):
        dist.barrier()
        began = time.perf_counter()
        dist.all_reduce(data)
        seconds.append(time.perf_counter() - began)
    return median(seconds[1:])
