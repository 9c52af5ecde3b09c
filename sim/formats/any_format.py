"""Readings from a file of any known format: nccl-tests or PyTorch's profiler."""

from collections.abc import Iterator
from pathlib import Path

from sim.formats import kineto, nccl_tests
from sim.formats.operation_times import OperationTime


def read(path: Path) -> Iterator[OperationTime]:
    """The readings of a file. Raises `InputError` naming the line at which it is cut short."""
    return iter(kineto.read(path)) if _is_trace(path) else nccl_tests.read(path)


def _is_trace(path: Path) -> bool:
    """Whether it is a profiler's trace: its head has other keys than the JSON of nccl-tests."""
    if path.suffix == ".gz":
        return True
    try:
        with path.open("rb") as file:
            head = file.read(1 << 16)
    except OSError:
        return False  # its reader reports the error
    return (b"traceEvents" in head or b"schemaVersion" in head) and head.lstrip()[:1] == b"{"
