"""Counter tracks of a trace: memory of each stage, FLOP/s of each role, load of links."""

from collections.abc import Iterable, Iterator, Mapping

from sim.engine.memory_curve import MemoryCurve
from sim.engine.timeline import Rate, Timeline
from sim.jobs.traces.trace_events import Event, metadata, microseconds

_UNITS = {"FLOP/s": ("TFLOP/s", 1e12), "B/s": ("GB/s", 1e9)}


def counters(timeline: Timeline, memory: Iterable[MemoryCurve]) -> Iterator[Event]:
    """Memory (GiB) stands with the first role of its stage, a part a line; rates with their role,
    those of links in a process of their own."""
    first = {role.stage: role.index for role in reversed(timeline.roles)}
    for curve in memory:
        yield from _memory(curve, first[curve.stage])
    links = len(timeline.roles)
    if any(rate.role is None for rate in timeline.rates):
        yield metadata("process_name", links, name="links")
        yield metadata("process_sort_index", links, sort_index=links)
    for rate in timeline.rates:
        yield from _rate(rate, links if rate.role is None else rate.role)


def _memory(curve: MemoryCurve, pid: int) -> Iterator[Event]:
    rows = zip(curve.times.tolist(), curve.bytes.tolist(), curve.total.tolist(), strict=True)
    for time, sizes, total in rows:
        parts = dict(zip(curve.parts, sizes, strict=True)) | {"total": total}
        values = {part: round(size / 2**30, 6) for part, size in parts.items()}
        yield _counter("memory (GiB)", pid, time, values)


def _rate(rate: Rate, pid: int) -> Iterator[Event]:
    unit, much = _UNITS[rate.unit]
    name = f"{rate.of} ({unit})"
    values = dict(zip(map(microseconds, rate.times.tolist()), rate.values.tolist(), strict=True))
    for time, value in values.items():
        yield _counter(name, pid, time * 1e-6, {unit: round(value / much, 6)})


def _counter(name: str, pid: int, time: float, values: Mapping[str, float]) -> Event:
    return {"ph": "C", "name": name, "pid": pid, "ts": microseconds(time), "args": dict(values)}
