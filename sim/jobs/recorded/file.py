"""Read and write recordings as JSON, compressed if a name ends in .gz (docs/capture.md)."""

import gzip
import json
import re
from collections.abc import Sequence
from dataclasses import MISSING, asdict, fields
from math import prod
from pathlib import Path
from typing import Any

from sim.config import gate, limit, reads
from sim.config.errors import InputError
from sim.config.files import atomic_write
from sim.config.schema import validate
from sim.jobs.recorded.execution_trace import recording_of
from sim.jobs.recorded.kernels import kernel_of
from sim.jobs.recorded.recording import PARTS, Allocation, Operator, Recording
from sim.jobs.recorded.trace_nodes import is_trace

SUFFIXES = (".json", ".gz")
_REMEDY = "record it again with `sim capture`"
_LARGEST = 1 << 50  # a tensor with this many elements is refused
_OF_OBJECT, _OF_VALUE = 3e-5, 4e-6  # s to read and play each object and each value
_HELD, _HELD_OF_VALUE = 1000.0, 50.0  # bytes of memory, for each object and for each value
_SHOWN = 40  # the most characters of a refused name that a message shows


def is_script(name: str) -> bool:
    """Whether a file is a recording. Of all JSON files, only recordings have a "script"."""
    if not name.endswith(".json") or not reads.exists(Path(name)):
        return name.endswith(".json.gz")
    return b'"script":' in reads.content(Path(name))


def write(recordings: Sequence[Recording], path: Path) -> None:
    """Write recordings without fields that have default values. Raises `InputError` for recordings
    that `read` would refuse."""
    documents = [_document(recording) for recording in recordings]
    document = documents[0] if len(documents) == 1 else {"stages": documents}
    text = json.dumps(document, separators=(",", ":")).encode()
    _recordings(json.loads(text), str(path))
    with atomic_write(path) as part:
        part.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)


def _document(recording: Recording) -> dict[str, Any]:
    memory = [[m.event, m.block, m.bytes, m.stream, m.line, m.part] for m in recording.memory]
    return _plain(recording) | {"version": recording.version, "memory": memory}


def _plain(thing: Any) -> dict[str, Any]:
    values = {field.name: getattr(thing, field.name) for field in fields(thing)}
    usual = {
        f.name: f.default_factory() if f.default_factory is not MISSING else f.default
        for f in fields(thing)
    }
    kept = {key: value for key, value in values.items() if value != usual[key] and key != "memory"}
    return {key: _value(value) for key, value in kept.items()}


def _value(value: Any) -> Any:
    if isinstance(value, tuple) and value and hasattr(value[0], "__dataclass_fields__"):
        return [_plain(entry) for entry in value]
    return asdict(value) if hasattr(value, "__dataclass_fields__") else value


_OTHERS = {  # by a pattern that only such files have: a description, and a command that reads them
    rb'"traceEvents"': ("is a trace of PyTorch's profiler", "play it with `sim replay {0}`"),
    rb'"model_type"': ("describes a model", "give it as --model {0}"),
    rb'"step_time"|"schema":\s*\d': (
        "is a stored answer (--json)", "`sim compare` reads answers of `sim run`",
    ),
}  # fmt: skip


def refuse_other(path: Path) -> None:
    """Raise `InputError` for a JSON file that other commands read."""
    data = reads.unpacked(reads.content(path), str(path), _REMEDY)
    for pattern, (fault, remedy) in _OTHERS.items():
        if re.search(pattern, data) and b'"script":' not in data:
            raise InputError(str(path), fault, remedy.format(path))


def read(path: Path) -> tuple[Recording, ...]:
    """The recordings of a file, one per pipeline stage; an execution trace of PyTorch becomes a
    recording. Raises `InputError` for any other file. No code of the file is run."""
    where = str(path)
    data = reads.unpacked(reads.content(path), where, _REMEDY)
    _refuse_long(data, where)
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise InputError(where, "is not JSON", _REMEDY) from None
    if is_trace(document):
        recording = recording_of(document, where)
        gate.refuse_unsound([recording.script, *recording.lines, *recording.notes], where)
        return (recording,)
    return _recordings(document, where)


def _refuse_long(data: bytes, where: str) -> None:
    """Raise `InputError` if reading and playing these data would take too long or too much
    memory."""
    values, objects = data.count(b","), data.count(b"{")
    content = f"a recording of {objects:,} entries and {values:,} values"
    limit.refuse_long(where, content, objects * _OF_OBJECT + values * _OF_VALUE)
    limit.refuse_large(where, content, objects * _HELD + values * _HELD_OF_VALUE)


def _recordings(document: Any, where: str) -> tuple[Recording, ...]:
    stages = document.get("stages", [document]) if isinstance(document, dict) else []
    if not isinstance(stages, list) or not stages:
        raise InputError(where, "is no recording of a training step", _REMEDY)
    if len(stages) == 1:
        return (_one(stages[0], where),)
    return tuple(
        _one(recording, f"{where}, stage {stage}") for stage, recording in enumerate(stages)
    )


def _one(document: Any, where: str) -> Recording:
    if not isinstance(document, dict) or "events" not in document:
        raise InputError(where, "is no recording of a training step", _REMEDY)
    gate.refuse_unsound(document, where)
    rows = document.pop("memory", [])
    recording = validate(document, Recording, where)
    for number, operator in enumerate(recording.operators):
        _check_operands(operator, f"{where}, operator {number}")
    return _with_memory(recording, rows, where)


def _check_operands(operator: Operator, where: str) -> None:
    """Raise `InputError` if an operator's operands do not fit its kernel or exceed any device."""
    try:
        kernel_of(operator)
    except (IndexError, TypeError, ValueError, ZeroDivisionError, OverflowError):
        fault = f"{operator.name[:_SHOWN]!a} does not have the operands that its kernel needs"
        raise InputError(where, fault, _REMEDY) from None
    if any(prod(tensor.shape) >= _LARGEST for tensor in (*operator.inputs, *operator.outputs)):
        raise InputError(
            where, f"{operator.name[:_SHOWN]!a} has a tensor beyond any memory", _REMEDY
        )


def _with_memory(recording: Recording, rows: Any, where: str) -> Recording:
    memory = []
    for number, row in enumerate(rows if isinstance(rows, list) else [None]):
        whole = isinstance(row, list) and len(row) == 6 and all(type(cell) is int for cell in row)
        if not whole or not _sound(allocation := Allocation(*row), recording):
            raise InputError(where, f"row {number} of memory is no allocation", _REMEDY)
        memory.append(allocation)
    object.__setattr__(recording, "memory", tuple(memory))
    return recording


def _sound(allocation: Allocation, recording: Recording) -> bool:
    return (
        -1 <= allocation.event <= len(recording.events)
        and -1 <= allocation.bytes < 1 << 50
        and allocation.block >= 0
        and allocation.stream >= 0
        and -1 <= allocation.line < len(recording.lines)
        and 0 <= allocation.part < len(PARTS)
    )
