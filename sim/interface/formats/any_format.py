"""Read measured times from a file of any known format: nccl-tests, PyTorch's profiler, tables."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from sim.config import reads
from sim.config.errors import InputError
from sim.interface.formats import collective_tables, nccl_tests
from sim.jobs.traces import kineto
from sim.jobs.traces.operation_times import OperationTime


def read(path: Path, wanted: Mapping[str, str] | None = None) -> Iterator[OperationTime]:
    """Return the measured times in a file; `wanted` (column and value) chooses rows of a table.
    Raises `InputError`, which names the line that cannot be read."""
    if path.name.endswith((".csv", ".csv.gz")):
        return collective_tables.read(path, wanted or {})
    if wanted:
        raise InputError(str(path), "has no columns to choose rows by", "leave out --rows")
    return iter(kineto.read(path)) if _is_trace(path) else nccl_tests.read(path)


def _is_trace(path: Path) -> bool:
    """Whether a file is a profiler's trace: its head has keys that nccl-tests' JSON does not."""
    if path.suffix == ".gz":
        return True
    head = reads.content(path)[: 1 << 16]
    known = (b"traceEvents", b"schemaVersion", b'"ph"')
    return any(word in head for word in known) and head.lstrip()[:1] in b"{["
