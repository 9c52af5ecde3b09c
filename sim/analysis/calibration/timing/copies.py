"""Copies between host and device and within a device, of increasing sizes."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sim.analysis.calibration.timing.clock import Call, Clock
from sim.hardware.kernels.environment import CopyKind, CopyTime

MIB = 2**20
SIZES = (64 * 2**10, MIB, 16 * MIB, 256 * MIB)


def copies(
    clock: Clock,
    sizes: Sequence[int] = SIZES,
    note: Callable[[str], None] = lambda message: None,
) -> Iterator[CopyTime]:
    """Each kind that the device has; a copy that does not fit into memory is left out and noted."""
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
    """Kinds of copies, each with whether the host's memory is page-locked.

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
