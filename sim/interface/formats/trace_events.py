"""Events of the Trace Event Format (Google, 2016): their clock, flow arrows and counter tracks.

The arrow of a message leads from its sender to its receiver. The arrows of a collective lead from
the last rank that joins it to each rank that waited. In the format's "Flow Events", `s` begins an
arrow and `f` with `bp` "e" ends it. Counters are the memory of each stage, FLOP/s of each role, and
load of links.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from sim.engine.memory_curve import MemoryCurve
from sim.engine.timeline import Rate, Timeline

Event = dict[str, Any]

TICK = 0.125  # us


def microseconds(seconds: float) -> float:
    """Convert seconds to microseconds, rounded to multiples of 1/8 us.

    Doubles hold these multiples exactly. So adjacent slices stay adjacent in a reader that adds
    start and duration, or that counts whole nanoseconds.

    >>> microseconds(0.0123456789)
    12345.625
    """
    return round(seconds * 1e6 / TICK) * TICK


def metadata(kind: str, pid: int, tid: int = 0, **args: Any) -> Event:
    """Return the event that gives the name or the position of a process or a thread."""
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "ts": 0, "args": args}


Way = tuple[int, int] | None


class _End(NamedTuple):
    """A slice in which a role of this stage takes part in a transfer. The role was `ready` for the
    transfer at that time (s)."""

    slice: Event
    stage: int
    ready: float


class Arrows:
    """The slices at both ends of the transfers that were written so far, for arrows."""

    def __init__(self) -> None:
        self._ends: defaultdict[int, list[_End]] = defaultdict(list)
        self._ways: dict[int, Way] = {}

    def note(self, number: int, way: Way, slice: Event, stage: int, ready: float) -> None:
        """Note that a slice takes part in the transfer of this number. `way` is the pair of sending
        and receiving stage, None for a collective."""
        self._ends[number].append(_End(slice, stage, ready))
        self._ways[number] = way

    def events(self) -> Iterator[Event]:
        """Yield the two events of each arrow."""
        for number, ends in self._ends.items():
            way = self._ways[number]
            if way is None:
                source = max(ends, key=lambda end: end.ready)
                others = [end for end in ends if end is not source]
            else:
                sources = [end for end in ends if end.stage == way[0]]
                if not sources:
                    continue
                source, others = sources[0], [end for end in ends if end.stage == way[1]]
            for target in others:
                yield from _arrow(f"{number}.{target.slice['pid']}", source.slice, target.slice)


def _arrow(name: str, source: Event, target: Event) -> Iterator[Event]:
    begin, cause = source["ts"], source["args"]["cause"]
    end = min(max(begin, target["ts"]), target["ts"] + target["dur"])
    for phase, slice, ts in (("s", source, begin), ("f", target, max(begin, end))):
        place = {"pid": slice["pid"], "tid": slice["tid"], "ts": ts}
        more = {"bp": "e"} if phase == "f" else {}
        yield {"ph": phase, "cat": "transfer", "name": cause, "id": name, **place, **more}


_UNITS = {"FLOP/s": ("TFLOP/s", 1e12), "B/s": ("GB/s", 1e9)}


def counters(timeline: Timeline, memory: Iterable[MemoryCurve]) -> Iterator[Event]:
    """Yield counters of memory and of rates. A stage's memory (GiB) is in the process of its first
    role, with a line for each part. Rates are in their role's process; rates of links have their
    own process."""
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
    unit, much = _UNITS.get(rate.unit, (rate.unit, 1.0))
    name = f"{rate.of} ({unit})"
    values = dict(zip(map(microseconds, rate.times.tolist()), rate.values.tolist(), strict=True))
    for time, value in values.items():
        yield _counter(name, pid, time * 1e-6, {unit: round(value / much, 6)})


def _counter(name: str, pid: int, time: float, values: Mapping[str, float]) -> Event:
    return {"ph": "C", "name": name, "pid": pid, "ts": microseconds(time), "args": dict(values)}
