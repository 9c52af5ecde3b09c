"""Write a timeline as a Chrome trace, which opens in Perfetto and in tools for PyTorch's traces.

A process is a role (ranks that do the same), a thread is a stream. The trace keeps the conventions
of PyTorch on which the tools rely. `ProfilerStep#N` is around the step, and `PP:2F0` around a pass
(piece 2 of the model, forward, microbatch 0). The names of communication kernels contain "nccl",
and collectives have `args` as Kineto writes them. Arrows lead from sends to receives. Counters show
memory, FLOP/s and the load of links (both in `trace_events.py`). A device's waiting is not a
kernel. Format: Trace Event Format (Google, 2016); Kineto's output of PyTorch 2.x.

A pass has seconds of compute and of communication, but no order inside it. The trace therefore
shows a kernel for each cause, one after the other.
"""

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, groupby
from pathlib import Path
from typing import Any

from sim.config.files import atomic_write
from sim.engine.memory_curve import MemoryCurve
from sim.engine.timeline import Role, Span, Timeline
from sim.interface.formats.trace_events import Arrows, Event, counters, metadata, microseconds
from sim.program.causes import COMPUTE, Cause
from sim.program.operations import COMPUTE_STREAM
from sim.program.schedule import NAMES

InFlight = tuple[Cause, str, float, float]  # a transfer's cause, kind, begin and end

_STEP, _PASSES = 0, 1
_FIRST_STREAM = 7  # CUDA's default stream in Kineto's traces
_COLLECTIVES = {  # the names in NCCL's kernels and in torch.distributed
    "all_reduce": ("AllReduce", "allreduce"),
    "all_gather": ("AllGather", "_allgather_base"),
    "reduce_scatter": ("ReduceScatter", "_reduce_scatter_base"),
    "broadcast": ("Broadcast", "broadcast"),
    "reduce": ("Reduce", "reduce"),
    "all_to_all": ("SendRecv", "all_to_all"),
    "send": ("SendRecv", "send"),
    "gather": ("SendRecv", "gather"),
    "scatter": ("SendRecv", "scatter"),
}


def write(timeline: Timeline, path: Path | str, memory: Sequence[MemoryCurve] = ()) -> None:
    """Write all roles into one file for Perfetto (https://ui.perfetto.dev); `.gz` compresses.

    Curves of `memory` become counter tracks of the first role of their stage. Raises `InputError`
    if the file cannot be written. The file is written whole or not at all.
    """
    _write(timeline, timeline.roles, path, counters(timeline, memory))


def write_each(timeline: Timeline, folder: Path | str) -> list[Path]:
    """Write a file for each role, as profilers write a file for each rank. HolisticTraceAnalysis
    reads the files.

    A file is named after the lowest rank of its role, such as `rank-0.json`. Raises `InputError` if
    a file cannot be written.
    """
    with suppress(OSError):  # the file's own error says what is wrong
        Path(folder).mkdir(parents=True, exist_ok=True)
    paths = [Path(folder) / f"rank-{role.first_rank}.json" for role in timeline.roles]
    for role, path in zip(timeline.roles, paths, strict=True):
        _write(timeline, (role,), path)
    return paths


def events(timeline: Timeline, roles: Iterable[Role] | None = None) -> Iterator[Event]:
    """Yield the trace's events. Events of a thread are in order and do not overlap."""
    by_role: list[list[Span]] = [[] for _ in timeline.roles]
    for span in timeline.spans:
        by_role[span.role].append(span)
    arrows = Arrows()
    for role in timeline.roles if roles is None else roles:
        spans = sorted(by_role[role.index], key=lambda span: (span.start, span.end))
        yield from _Process(role, arrows).events(spans, timeline.end)
    yield from arrows.events()


def _write(
    timeline: Timeline, roles: tuple[Role, ...], path: Path | str, more: Iterable[Event] = ()
) -> None:
    head = {
        "schemaVersion": 1,
        "deviceProperties": [],
        "distributedInfo": {
            "backend": "nccl",
            "rank": min((role.first_rank for role in roles), default=0),
            "world_size": sum(role.ranks for role in timeline.roles),
        },
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": 0,
    }
    written = chain(events(timeline, roles), more)
    lines = ",\n".join(map(json.dumps, written))
    text = f'{json.dumps(head)[:-1]}, "traceEvents": [\n{lines}\n]}}\n'
    data = text.encode()
    with atomic_write(path) as part:
        part.write_bytes(gzip.compress(data, mtime=0) if part.suffix == ".gz" else data)


class _Process:
    """The events of one role; threads are numbered as they appear."""

    def __init__(self, role: Role, arrows: Arrows) -> None:
        self.role, self.arrows = role, arrows
        self.threads: dict[str, int] = {}
        self.ends: dict[int, float] = {}
        self.sequence = 0

    def events(self, spans: list[Span], end: float) -> list[Event]:
        kernels = [event for span in spans for event in self._kernels(span)]
        notes = [self._note(_STEP, "ProfilerStep#0", 0.0, end), *self._passes(spans)]
        return [*self._metadata(), *notes, *kernels]

    def _metadata(self) -> Iterator[Event]:
        role = self.role
        ranks = f"{role.ranks} ranks" if role.ranks > 1 else f"rank {role.first_rank}"
        yield self._named("process_name", name=f"{role.name} ({ranks})")
        yield self._named("process_labels", labels=_place(role))
        yield self._named("process_sort_index", sort_index=role.index)
        threads = {"step": _STEP, "passes": _PASSES} | self.threads
        for name, tid in threads.items():
            label = f"stream {tid} {name}" if tid >= _FIRST_STREAM else name
            yield self._named("thread_name", tid, name=label)
            yield self._named("thread_sort_index", tid, sort_index=tid)

    def _named(self, kind: str, tid: int = 0, **args: Any) -> Event:
        return metadata(kind, self.role.index, tid, **args)

    def _note(self, tid: int, name: str, start: float, end: float, **args: Any) -> Event:
        return self._slice(tid, "user_annotation", name, start, end, args)

    def _slice(
        self, tid: int, cat: str, name: str, start: float, end: float, args: dict[str, Any]
    ) -> Event:
        ts = microseconds(start)
        return {
            "ph": "X",
            "cat": cat,
            "name": name,
            "pid": self.role.index,
            "tid": tid,
            "ts": ts,
            "dur": microseconds(end) - ts,
            "args": args,
        }

    def _passes(self, spans: list[Span]) -> Iterator[Event]:
        """Yield an annotation around each pass, and around each other computation of the compute
        stream. Side streams are left out, because their spans may overlap the next pass."""
        passes = (span for span in spans if "phase" in span.args)
        computed = [span for span in passes if span.stream == COMPUTE_STREAM]
        for name, pieces in groupby(computed, self._pass_name):
            spans_of_pass = list(pieces)
            first, last = spans_of_pass[0], spans_of_pass[-1]
            args = {key: first.args.get(key) for key in ("microbatch", "chunk")}
            yield self._note(_PASSES, name, first.start, last.end, **args)

    def _pass_name(self, span: Span) -> str:
        """Return PyTorch's name of a pass; any other span keeps its name."""
        kind, microbatch = span.args["phase"], span.args.get("microbatch", -1)
        if kind not in NAMES:
            return span.name
        piece = self.role.pieces[span.args.get("chunk", 0)]
        return f"PP:{piece}{kind}" + ("" if microbatch < 0 else str(microbatch))

    def _kernels(self, span: Span) -> Iterator[Event]:
        if "phase" in span.args or "parts" in span.args:
            yield from self._computed(span)
        elif "transfers" in span.args or "bytes" in span.args:
            yield from self._communicated(span)
        else:
            yield self._kernel(span.stream, span.name, span.start, span.end, {"cause": span.cause})

    def _computed(self, span: Span) -> Iterator[Event]:
        """Yield the parts of a pass, one after the other, so that the last ends with the span. The
        time before the first part is the host's lag."""
        parts = span.args.get("parts") or ((span.cause, span.duration),)
        keys = ("microbatch", "chunk", "phase")
        args: dict[str, Any] = {key: span.args[key] for key in keys if key in span.args}
        clock = max(span.end - sum(seconds for _, seconds in parts), span.start)
        for cause, seconds in parts:
            start, clock = clock, min(clock + seconds, span.end)
            name = _compute_name(cause, span.args.get("phase", ""))
            made = self._kernel(span.stream, name, start, clock, {"cause": cause, **args})
            yield made if cause.kind != "waiting" else made | {"cat": "waiting", "args": args}

    def _communicated(self, span: Span) -> Iterator[Event]:
        """Yield the transfers of a span, without the waiting before them."""
        whole_span = ((span.cause, span.args.get("kind", ""), span.start, span.end),)
        flights, meetings = span.args.get("transfers", whole_span), span.args.get("meetings", ())
        for cause, places, start, end in _merged(flights):
            kinds = tuple(dict.fromkeys(flights[place][1] for place in places))
            lane = cause if span.stream == COMPUTE_STREAM else span.stream
            if cause.kind == "waiting":  # for other ranks inside a computation: no transfer
                args = {"cause": cause, "operation": span.name}
                made = self._kernel(span.stream, cause, span.start, span.end, {})
                made |= {"cat": "waiting", "args": args}
            else:
                given = _of_flights(span, places)
                args = {"cause": cause, "operation": span.name}
                args |= self._facts(span.cause, given, kinds)
                made = self._kernel(lane, _kernel_name(kinds, given), start, end, args)
            for number, way in (meetings[place] for place in places if meetings):
                self.arrows.note(number, way, made, self.role.stage, span.start)
            yield made

    def _facts(
        self, group: str, given: Mapping[str, Any], kinds: tuple[str, ...]
    ) -> dict[str, Any]:
        """Return the `args` of a collective: names of `sim` first, then Kineto's."""
        facts = {key: given[key] for key in ("algorithm", "protocol") if given.get(key)}
        facts |= {"kind": "+".join(kinds)}
        if "bytes" not in given:
            return facts
        size, ranks = float(given["bytes"]), max(int(given.get("ranks", 1)), 1)
        self.sequence += 1
        return facts | {
            "bytes": size,
            "ranks": ranks,
            "Collective name": _COLLECTIVES.get(kinds[-1], ("", kinds[-1]))[1],
            "In msg nelems": round(size / ranks) if kinds[-1] == "all_gather" else round(size),
            "Out msg nelems": round(size / ranks) if kinds[-1] == "reduce_scatter" else round(size),
            "Group size": ranks,
            "dtype": "Byte",
            "Process Group Description": group,
            "Rank": self.role.first_rank,
            "Seq": self.sequence,
        }

    def _kernel(
        self, lane: str, name: str, start: float, end: float, args: dict[str, Any]
    ) -> Event:
        tid = self.threads.setdefault(lane, _FIRST_STREAM + len(self.threads))
        start = max(start, self.ends.get(tid, 0.0))
        self.ends[tid] = end = max(end, start)
        return self._slice(tid, "kernel", name, start, end, {"device": 0, "stream": tid, **args})


def _place(role: Role) -> str:
    """Return the lowest rank of a role with its coordinates: `first rank 8: tp 0, pp 1`."""
    along = ", ".join(f"{axis} {place}" for axis, place in role.coordinates)
    return f"first rank {role.first_rank}" + (f": {along}" if along else "")


def _compute_name(cause: Cause, phase: str) -> str:
    if cause.kind == "communication":
        return f"ncclDevKernel ({cause})"
    return NAMES.get(phase, cause) if cause == COMPUTE else cause


def _of_flights(span: Span, places: Sequence[int]) -> Mapping[str, Any]:
    """Return the facts of the last transfer at some `places` in a span, with the bytes of all these
    transfers."""
    if not (each := span.args.get("facts")):
        return span.args
    return {**each[places[-1]], "bytes": sum(each[place]["bytes"] for place in places)}


def _kernel_name(kinds: tuple[str, ...], args: Mapping[str, Any]) -> str:
    """Return NCCL's name of a kernel, such as `ncclDevKernel_AllReduce_RING_LL128`, or CUDA's name
    of a copy."""
    if kinds == ("copy",):
        return "Memcpy"
    names = dict.fromkeys(_COLLECTIVES.get(kind, (kind, ""))[0] for kind in kinds)
    tail = [str(args[key]).upper() for key in ("algorithm", "protocol") if args.get(key)]
    return "_".join(["ncclDevKernel", *filter(None, names), *tail])


def _merged(transfers: Sequence[InFlight]) -> Iterator[tuple[Cause, list[int], float, float]]:
    """Merge transfers of the same cause that overlap in time. Yield each merged slice's cause,
    indices of its transfers, start and end."""
    order = sorted(range(len(transfers)), key=lambda place: transfers[place][::2])
    while order:
        cause, _, start, end = transfers[order[0]]
        together = 0
        while together < len(order) and transfers[order[together]][0] == cause:
            if together and transfers[order[together]][2] >= end:
                break
            end = max(end, transfers[order[together]][3])
            together += 1
        yield cause, order[:together], start, end
        order = order[together:]
