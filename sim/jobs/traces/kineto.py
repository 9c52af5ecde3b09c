"""What does a trace of PyTorch's profiler (Kineto) say about kernels and collectives?

A kernel on a GPU is an event of category "kernel". A kernel of NCCL has the collective, its
elements and its group in `args`. On CPUs an operator is a kernel, and events named `gloo:...` are
collectives. Their group is the only group of the trace's `distributedInfo`; their size is recorded
with `record_shapes=True`. The measured time of a collective includes its wait for other ranks. The
shortest of many times is nearest to the time of the transfer alone. Format: Trace Event Format
(Google, 2016). torch 1.8 and 1.9 use other names of categories, and may write a list of events
without an object around it.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from sim.config import gate, reads
from sim.config.errors import InputError
from sim.config.json_fault import json_fault
from sim.jobs.recorded.kernels import call_of
from sim.jobs.recorded.trace_nodes import is_trace
from sim.jobs.traces.described import DTYPES, Event, described, elements_of
from sim.jobs.traces.operation_times import OperationTime, of_samples

_REMEDY = "give a whole trace of PyTorch's profiler"
_LARGEST = 1 << 40  # the largest dimension of a tensor
_MOST = 1 << 62  # the most ranks, elements or calls
_COUNTS = (
    *("In msg nelems", "Out msg nelems", "Group size", "correlation", "stream", "wait_on_stream"),
    *("wait_on_cuda_event_record_corr_id", "rank", "world_size", "pg_size"),
)

_CATEGORIES = {  # names of categories in torch 1.8 and 1.9: the names since then
    "Operator": "cpu_op",
    "Runtime": "cuda_runtime",
    "Kernel": "kernel",
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
}
_SERVING = re.compile(
    r"(^|/)(vllm|sglang)(/|::)|^sgl_kernel::|^execute_\w*context_\d|^step\[(DECODE|EXTEND)"
)
_TRAINING = ("Optimizer.step", "autograd::engine")
Key = tuple[tuple[str, Any], ...]


def _kind(name: str) -> str | None:
    """The kind of a collective or message by torch's name; None for other calls.

    >>> _kind("allreduce_coalesced"), _kind("recv"), _kind("barrier")
    ('all_reduce', 'point_to_point', None)
    """
    call = name if name == "reduce" else call_of(name)
    return "point_to_point" if call in ("send", "recv") else call


def read(path: Path) -> list[OperationTime]:
    """A reading for each kernel by name, and for each collective, size and group.

    Raises an `InputError` that names the line at which the file ends, if it is not a whole trace.
    """
    return [
        OperationTime(**dict(key), **of_samples(samples), source=path.name)
        for key, samples in samples_of(trace_of(path)).items()
    ]


def samples_of(trace: Mapping[str, Any]) -> dict[Key, list[float]]:
    """The seconds of every call of each kernel and collective of a trace, in their order."""
    times: dict[Key, list[float]] = defaultdict(list)
    for key, seconds in _timed(trace):
        times[key].append(seconds)
    return times


def trace_of(path: Path) -> Mapping[str, Any]:
    """The whole document. Raises `InputError` where the file is not a whole trace."""
    text = _text(path)
    try:
        trace = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _wrong(path, *json_fault(error)) from None
    if is_trace(trace):
        remedy = "play it on a cluster: sim run FILE --topology NAME"
        raise InputError(str(path), "is an execution trace, which has no times", remedy)
    if isinstance(trace, dict) and {"script", "events"} <= trace.keys():
        remedy = "play it on a cluster: sim run FILE --topology NAME"
        raise InputError(str(path), "is a recording of sim capture, which has no times", remedy)
    trace = {"traceEvents": trace} if isinstance(trace, list) else trace
    _refuse_other_profilers(trace, path)
    if not isinstance(trace, dict) or not isinstance(trace.get("traceEvents"), list):
        raise _wrong(path, 1, "holds no traceEvents")
    _refuse_other_kinds(trace, path)
    events = [_renamed(event) for event in trace["traceEvents"]]
    _refuse_serving(events, path)
    told = described(events, trace.get("distributedInfo") or {})
    return {**trace, "traceEvents": told}


def _renamed(event: Event) -> Event:
    """An event; if torch 1.8 or 1.9 wrote it, with today's names of its category and its id."""
    category = event.get("cat")
    if category not in _CATEGORIES:
        return event
    args = dict(event.get("args") or {})
    if "external id" in args:
        args["External id"] = args.pop("external id")
    return {**event, "cat": _CATEGORIES[category], "args": args}


def _refuse_other_profilers(trace: Any, path: Path) -> None:
    """Refuse traces of rocprof and rocprofv3, which have kernels without operators and launches."""
    events = trace.get("traceEvents") if isinstance(trace, dict) else None
    args = (event.get("args") for event in events or () if isinstance(event, dict))
    timed = any(isinstance(given, dict) and {"BeginNs", "EndNs"} <= given.keys() for given in args)
    if timed or (isinstance(trace, dict) and "rocprofiler-sdk-tool" in trace):
        fault = "is a trace of rocprof, which has no operators and no steps"
        raise InputError(str(path), fault, "record a step with torch.profiler")


def _refuse_serving(events: Iterable[Event], path: Path) -> None:
    """Refuse traces of vLLM and SGLang, unless a step of training is among their events."""
    names = [str(event["name"]) for event in events if event.get("ph") == "X"]
    serving = any(map(_SERVING.search, names))
    if serving and not any(name.startswith(_TRAINING) for name in names):
        fault = "is a trace of an inference engine, whose steps are not those of training"
        raise InputError(str(path), fault, "profile a step of training")


def events_of(path: Path) -> list[Event]:
    """The events of a whole trace that take time. Raises `InputError`."""
    return [event for event in trace_of(path)["traceEvents"] if event.get("ph") == "X"]


def _refuse_other_kinds(trace: Mapping[str, Any], path: Path) -> None:
    """Refuse values of types that Kineto does not write, so that readers need no checks."""
    job = trace.get("distributedInfo") or {}
    groups = job.get("pg_config") or [{}] if isinstance(job, dict) else None
    known = isinstance(groups, list) and all(isinstance(group, dict) for group in groups)
    if not known or not isinstance(trace.get("deviceProperties") or [], list):
        raise InputError(str(path), "does not begin like a profiler's trace", _REMEDY)
    if fault := _fault(job, _COUNTS) or _fault(groups[0], _COUNTS):  # type: ignore[index]
        raise InputError(f"{path}, distributedInfo", fault, _REMEDY)
    for number, event in enumerate(trace["traceEvents"]):
        if fault := _fault_of(event):
            raise InputError(f"{path}, event {number}", fault, _REMEDY)


def _fault_of(event: Any) -> str:
    """The fault of an event; empty if it has none."""
    if not isinstance(event, dict):
        return "is not an object"
    if event.get("ph") != "X":
        return ""
    args = event.get("args") or {}
    if not isinstance(event.get("name"), str) or not isinstance(args, dict):
        return "has no name, or its args are not an object"
    if not _is_number(event.get("ts")) or not _is_number(event.get("dur", 0)):
        return "has a time that is not a number"
    if event.get("cat") == "kernel" and event.get("dur", -1) < 0:
        return f"{gate.shown(event['name'])} is a kernel of unknown duration"
    for table, names in ((event, ("cat", "pid", "tid")), (args, ("External id",))):
        if name := next((n for n in names if isinstance(table.get(n), list | dict)), ""):
            return f"{name} = {gate.shown(table[name])} is neither a name nor a number"
    for name, known in (("Input type", _is_word), ("Input Dims", _is_shape)):
        given = args.get(name) or []
        if not isinstance(given, list) or not all(map(known, given)):
            return f"{name} = {gate.shown(given)} is not a list of operands"
    return _fault(args, _COUNTS)


def _is_word(value: Any) -> bool:
    return isinstance(value, str)


def _is_shape(value: Any) -> bool:
    """Whether a value is the shape of a tensor, the shapes of a list of tensors, or empty."""
    return value == "" or (
        isinstance(value, list)
        and all(_is_shape(n) if isinstance(n, list) else _is_size(n) for n in value)
    )


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value < _LARGEST


def _fault(table: Mapping[str, Any], counts: Iterable[str]) -> str:
    for key in counts:
        value = table.get(key, 0)
        if not isinstance(value, int) or not -1 <= value < _MOST:
            return f"{key} = {gate.shown(value)} is not a count"
    return ""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not gate.fault_of(value)


def _text(path: Path) -> str:
    """The text of a trace, which may be cut short; parsing finds out where."""
    data = reads.unpacked(reads.content(path), str(path), reads.LESS, cut_short=True)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        if error.end == len(data):  # cut short within a character
            return data[: error.start].decode()
        raise InputError(str(path), "is not UTF-8 text", _REMEDY) from None


def _timed(trace: Mapping[str, Any]) -> Iterator[tuple[Key, float]]:
    """The operation that each event measured, and its seconds (durations are in us)."""
    events = [e for e in trace["traceEvents"] if e.get("ph") == "X" and e.get("dur", 0) > 0]
    on_gpu = any(event.get("cat") == "kernel" for event in events)
    per_node = len(trace.get("deviceProperties") or ())
    kernels = (e for e in events if e.get("cat") == "kernel")
    operators = (e for e in events if e["name"].startswith("aten::"))
    for event in kernels if on_gpu else outermost(operators, "pid", "tid"):
        args = event.get("args") or {}
        nccl = "Collective name" in args
        operation = collective_of(args, per_node) if nccl else _of_kernel(event["name"])
        yield tuple(operation.items()), event["dur"] * 1e-6
    ranks = _world(trace)
    for event in events:
        if (collective := gloo_of(event, ranks)) and collective["bytes"]:
            yield tuple(collective.items()), event["dur"] * 1e-6


def outermost(operators: Iterable[Event], *same: str) -> Iterator[Event]:
    """Operators that no other operator called. Operators of a thread have equal values of
    `same`."""
    ends: dict[Any, float] = {}
    for event in sorted(operators, key=lambda event: (event["ts"], -event["dur"])):
        thread = tuple(map(event.get, same))
        if event["ts"] >= ends.get(thread, 0.0):
            ends[thread] = event["ts"] + event["dur"]
            yield event


def _of_kernel(name: str) -> dict[str, Any]:
    """A kernel's name without the arguments of its template and call.

    >>> _of_kernel("void at::native::add<float>(float*, int)")["name"]
    'at::native::add'
    """
    plain = re.split(r"[<(]", name.removeprefix("void "), maxsplit=1)[0]
    return {"operation": "kernel", "name": plain.strip() or name}


def collective_of(args: Mapping[str, Any], per_node: int) -> dict[str, Any]:
    """The collective of a kernel. As in nccl-tests, its bytes are the larger of the bytes of its
    input and of its output."""
    kind = str(args["Collective name"])
    dtype, width = _dtype(args.get("dtype"))
    elements = max(int(args.get(f"{end} msg nelems", 0)) for end in ("In", "Out"))
    ranks = max(1, int(args.get("Group size", 1)))
    return {
        "operation": _kind(kind) or kind,
        "name": str(args.get("Process Group Name", "")),
        "ranks": ranks,
        "nodes": _nodes(args, ranks, per_node),
        "bytes": float(elements * width),
        "dtype": dtype,
    }


def lacking(args: Mapping[str, Any]) -> str:
    """A fact that the trace lacks, although the time of a collective on another network depends on
    it; empty if no fact is missing.

    >>> lacking({"Collective name": "allreduce", "dtype": "Float"})
    'group size'
    >>> lacking({"Input type": ["float"]})
    ''
    """
    nccl = "Collective name" in args
    dtype = args.get("dtype") if nccl else (args.get("Input type") or [""])[0]
    if str(dtype).lower() not in DTYPES:
        return "known dtype"
    if not nccl or 1 <= (ranks := int(args.get("Group size", 0))) <= 2:
        return ""
    message = _kind(str(args["Collective name"])) == "point_to_point"
    return "group size" if ranks < 1 else "peer" if message else ""


def members_of(args: Mapping[str, Any], ranks: int) -> tuple[int, ...]:
    """The members of a group of `ranks` ranks; empty if the trace does not list them all.

    >>> members_of({"Process Group Ranks": "[0, 8]"}, 2)
    (0, 8)
    >>> members_of({"Process Group Ranks": "[0, 1, ..., 15]"}, 16)
    ()
    """
    listed = re.findall(r"\d+", str(args.get("Process Group Ranks", "")))
    return tuple(map(int, listed)) if len(listed) == ranks else ()


def _nodes(args: Mapping[str, Any], ranks: int, per_node: int) -> int:
    """The number of nodes of a group. If a long list of members is cut with dots, they count as
    dense.

    >>> _nodes({"Process Group Ranks": "[0, 8]"}, 2, 8), _nodes({}, 16, 8), _nodes({}, 4, 0)
    (2, 2, 1)
    """
    if not per_node:
        return 1
    members = members_of(args, ranks)
    return len({rank // per_node for rank in members}) if members else -(-ranks // per_node)


def gloo_of(event: Event, ranks: int) -> dict[str, Any] | None:
    """A collective of gloo; its bytes are 0 if shapes were not recorded. None for other events."""
    backend, _, name = str(event["name"]).partition(":")
    kind = _kind(name) if backend == "gloo" else None
    args = event.get("args") or {}
    if kind is None:
        return None
    dtype, width = _dtype((args.get("Input type") or [""])[0])
    parts = ranks if kind == "all_gather" else 1
    elements = min(sum(map(elements_of, args.get("Input Dims") or ())), _MOST)
    size = float(parts * width * elements)
    return {"operation": kind, "ranks": ranks, "bytes": size, "dtype": dtype}


def _world(trace: Mapping[str, Any]) -> int:
    """Ranks of the trace's first group."""
    job = trace.get("distributedInfo") or {}
    groups = job.get("pg_config") or [{}]
    return int(groups[0].get("pg_size", 0) or job.get("world_size", 1))


def _dtype(name: Any) -> tuple[str, int]:
    """The name of a dtype in `sim`, and its bytes; 4 if the dtype is unknown."""
    return DTYPES.get(str(name).lower(), (str(name or ""), 4))


def _wrong(path: Path, line: int, fault: str) -> InputError:
    return InputError(f"{path}, line {line}", fault, _REMEDY)
