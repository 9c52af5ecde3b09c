"""From Kineto's events to what each rank did.

CUPTI gives a kernel and the call that launched it one `correlation`. Who waits for whom is written
down where synchronisation was recorded (category `cuda_sync`: `Stream Wait Event` with the stream
that it waits for); elsewhere a `cudaStreamWaitEvent` before a launch is taken to mean the kernel
that was launched last on every other stream and had ended when the launched one began. A host waits
in calls named ...Synchronize, and in copies that it does not leave before they end, for the kernels
that end meanwhile. Threads of a host take turns (autograd's does), so they are read as one.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from sim.config.errors import InputError
from sim.formats.kineto import collective_of, members_of, trace_of
from sim.traces.activity import Collective, HostItem, Kernel, Rank

Event = Mapping[str, Any]
Span = tuple[float, float]

_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_CALLS = ("cuda_runtime", "cuda_driver")
_CLOSE = 1.0  # us: clocks of host and device agree about as well (CUPTI's own conversion)


def read(path: Path, removed: str = "") -> Rank:
    """The steps of one rank; operators whose name contains `removed` are left out, with what they
    launched and the host's time for them. Raises `InputError` for a file that holds no step."""
    document = trace_of(path)
    events = [e for e in document["traceEvents"] if e.get("ph") == "X" and e.get("dur", -1) >= 0]
    begin, end, steps = _window(events, path)
    events = [e for e in events if begin <= e["ts"] < end or e.get("cat") in _DEVICE]
    gone = tuple(_merged((e["ts"], e["ts"] + e["dur"]) for e in _removed(events, removed)))
    if removed and not gone:
        names = Counter(e["name"] for e in events if e.get("cat") == "cpu_op").most_common(3)
        some = ", ".join(name for name, _ in names) or "none"
        raise InputError("--remove", f"{path.name} has no operator {removed!r}", f"often: {some}")
    reader = _Reader(document, events, begin, end, gone)
    return reader.rank(steps)


def _window(events: Iterable[Event], path: Path) -> tuple[float, float, int]:
    """From the first marked step to the end of the last (us), and how many; else everything."""
    marks = [e for e in events if str(e["name"]).startswith("ProfilerStep#") and _on_host(e)]
    if marks:
        ends = max(e["ts"] + e["dur"] for e in marks)
        return min(e["ts"] for e in marks), ends, len(marks)
    times = [
        (e["ts"], e["ts"] + e["dur"])
        for e in events
        if e.get("cat") in (*_DEVICE, *_CALLS, "cpu_op")
    ]
    if not times:
        raise InputError(
            str(path), "holds neither kernels nor operators", "profile a step of training"
        )
    return min(begin for begin, _ in times), max(end for _, end in times) + _CLOSE, 1


def _on_host(event: Event) -> bool:
    return event.get("cat") in ("user_annotation", "cpu_op")


def _removed(events: Iterable[Event], name: str) -> Iterator[Event]:
    if name:
        yield from (e for e in events if e.get("cat") == "cpu_op" and name in e["name"])


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of the host that launched kernels, or waited (for `everything`)."""

    begin: float
    end: float
    kernels: tuple[int, ...]
    everything: bool


class _Reader:
    """One rank while it is read; times in us."""

    def __init__(
        self, document: Mapping[str, Any], events: list[Event], begin: float, end: float,
        gone: tuple[Span, ...],
    ) -> None:  # fmt: skip
        self.begin, self.end, self.gone = begin, end, gone
        self.gone_before = [0.0, *accumulate(b - a for a, b in gone)]
        job = document.get("distributedInfo") or {}
        self.number, self.world = int(job.get("rank", 0)), int(job.get("world_size", 1))
        self.per_node = len(document.get("deviceProperties") or ())
        calls = [e for e in events if e.get("cat") in _CALLS]
        launches = {
            e["args"]["correlation"]: e for e in calls if "correlation" in e.get("args", {})
        }
        found = [e for e in events if e.get("cat") in _DEVICE]
        self.on_device = bool(found)
        found = found or list(_operators(events))
        found = [e for e in found if self._starts(e, launches) is not None]
        pairs = ((launches.get(_correlation(e)), e) for e in found)
        order = sorted(pairs, key=lambda pair: ((pair[0] or pair[1])["ts"], pair[1]["ts"]))
        self.launch, self.found = [launch for launch, _ in order], [event for _, event in order]
        self.ends = [e["ts"] + e["dur"] for e in self.found]
        self.waits = [e for e in calls if "StreamWaitEvent" in e["name"]]
        self.told = _told(events)
        known: defaultdict[int, list[int]] = defaultdict(list)
        for n, call in enumerate(self.launch):
            if call is not None:
                known[id(call)].append(n)
        self.calls = sorted(
            (
                _Call(
                    e["ts"],
                    e["ts"] + e["dur"],
                    tuple(known.get(id(e), ())),
                    "DeviceSync" in e["name"],
                )
                for e in calls
                if id(e) in known or "Synchronize" in e["name"]
            ),
            key=lambda call: (call.begin, call.end),
        )
        self.seen: Counter[tuple[str, str]] = Counter()

    def _starts(self, event: Event, launches: Mapping[Any, Event]) -> float | None:
        """When the host asked for it; None for what it asked for outside of the steps."""
        launch = launches.get(_correlation(event), event)
        if launch is event and event.get("cat") in _DEVICE and launches:
            return None
        asked = float(launch["ts"])
        return asked if self.begin <= asked < self.end else None

    def rank(self, steps: int) -> Rank:
        points = self._points()
        kernels = tuple(self._kernels(points))
        host = tuple(self._host(points))
        last = max((self.end, *self.ends))
        return Rank(
            rank=self.number, world=self.world, kernels=kernels, host=host, steps=steps,
            measured=(last - self.begin) * 1e-6,
        )  # fmt: skip

    def _points(self) -> list[float]:
        """When the device knew of each kernel: as the call that launched it ends, or the first of
        these begins."""
        points = [float(event["ts"]) for event in self.found]
        for call in self.calls:
            first = min((points[n] for n in call.kernels), default=0.0)
            for n in call.kernels:
                points[n] = min(first, call.end)
        return points

    # --- The device ------------------------------------------------------------------------------

    def _kernels(self, points: list[float]) -> Iterator[Kernel]:
        before: dict[str, int] = {}  # the last on each stream
        for n, event in enumerate(self.found):
            stream = self._stream(event)
            after = tuple(
                m for m in self._awaited(n, stream, before) if self.ends[m] <= event["ts"] + _CLOSE
            )
            known = self.launch[n] is not None or not self.on_device
            ready = [points[n] if known else self.begin, *(self.ends[m] for m in after)]
            if stream in before:
                ready.append(self.ends[before[stream]])
            before[stream] = n
            yield Kernel(
                name=event["name"],
                stream=stream,
                seconds=self._seconds(n),
                lag=max(event["ts"] - max(ready), 0.0) * 1e-6,
                after=after,
                collective=None if self._removed(n) else self._collective(event),
            )

    def _seconds(self, n: int) -> float:
        """How long a kernel ran, nothing where its operator was removed."""
        if not self.on_device:
            return self._passed(self.found[n]["ts"], self.ends[n])
        return 0.0 if self._removed(n) else float(self.found[n]["dur"]) * 1e-6

    def _removed(self, n: int) -> bool:
        launch = self.launch[n]
        return launch is not None and _inside(self.gone, launch["ts"])

    def _stream(self, event: Event) -> str:
        if event.get("cat") not in _DEVICE:
            return "operators"
        return f"stream {(event.get('args') or {}).get('stream', event.get('tid'))}"

    def _awaited(self, n: int, stream: str, before: Mapping[str, int]) -> Iterator[int]:
        """The kernels on other streams that this one was made to wait for."""
        launch = self.launch[n]
        if launch is None:
            return
        previous = self.launch[before[stream]] if stream in before else None
        since = previous["ts"] if previous else self.begin
        if self.told:
            others = {
                f"stream {e['args']['wait_on_stream']}"
                for e in self.told
                if since <= e["ts"] <= launch["ts"] and f"stream {e['args']['stream']}" == stream
            }
            yield from (m for other, m in before.items() if other in others)
        elif any(since <= e["ts"] <= launch["ts"] for e in self._waits_before(launch["ts"])):
            yield from (m for other, m in before.items() if other != stream)

    def _waits_before(self, moment: float) -> list[Event]:
        """The last few calls that made a stream wait."""
        place = bisect_right(self.waits, moment, key=lambda event: event["ts"])
        return self.waits[max(place - 4, 0) : place]

    def _collective(self, event: Event) -> Collective | None:
        args = event.get("args") or {}
        if "nccl" not in event["name"].lower() and "rccl" not in event["name"].lower():
            return None
        if "Collective name" not in args:
            named = str(event["name"]).split("(")[0]
            key = "all", named
            what: dict[str, Any] = {"operation": named, "bytes": 0.0, "ranks": 1, "nodes": 1}
        else:
            what = collective_of(args, self.per_node)
            key = f"{what['name']} {args.get('Process Group Ranks', '')}".strip(), what["operation"]
        self.seen[key] += 1
        return Collective(
            key=(*key, self.seen[key]), kind=what["operation"], bytes=what["bytes"],
            ranks=what["ranks"], nodes=what["nodes"], members=members_of(args, what["ranks"]),
        )  # fmt: skip

    # --- The host --------------------------------------------------------------------------------

    def _host(self, points: list[float]) -> Iterator[HostItem]:
        """From one launch or wait to the next, without what was removed; nothing where a trace has
        no launches."""
        if not self.on_device:
            yield from self._of_operators()
        if not any(self.launch):
            return
        at = self.begin
        for call in self.calls:
            if not call.kernels:
                ended = self._ended_within(call)
                point = max(call.begin, at)
                yield HostItem(seconds=self._passed(at, point), awaited=ended)
                at = max(max((self.ends[n] for n in ended), default=point), point)
                continue
            point = max(points[call.kernels[0]], at)
            yield HostItem(seconds=self._passed(at, point), launched=call.kernels)
            at = point
            last = call.kernels[-1]
            if "emcpy" in self.found[last]["name"] and call.end >= self.ends[last]:
                yield HostItem(seconds=0.0, awaited=(last,))
                at = max(at, self.ends[last])
        yield HostItem(seconds=self._passed(at, self.end))

    def _of_operators(self) -> Iterator[HostItem]:
        """Operators of a CPU are the host's own time."""
        at = self.begin
        for n, event in enumerate(self.found):
            yield HostItem(seconds=self._passed(at, event["ts"]), launched=(n,))
            yield HostItem(seconds=0.0, awaited=(n,))
            at = self.ends[n]
        yield HostItem(seconds=self._passed(at, self.end))

    def _ended_within(self, call: _Call) -> tuple[int, ...]:
        """The kernels that a call waits for, the last on each stream: those that ended meanwhile,
        or before it where it waits for the whole device."""
        latest: dict[str, int] = {}
        for n in range(len(self.found)):
            launch = self.launch[n]
            if launch is None or launch["ts"] > call.begin:
                continue
            if (call.everything or call.begin < self.ends[n]) and self.ends[n] <= call.end + _CLOSE:
                latest[self._stream(self.found[n])] = n
        return tuple(latest.values())

    def _passed(self, begin: float, end: float) -> float:
        """Seconds of the host between two moments, without those of removed operators."""
        if end <= begin:
            return 0.0
        return (end - begin - self._gone(end) + self._gone(begin)) * 1e-6

    def _gone(self, moment: float) -> float:
        """What was removed before a moment."""
        place = bisect_right(self.gone, moment, key=lambda span: span[0])
        if not place:
            return 0.0
        begin, end = self.gone[place - 1]
        return self.gone_before[place - 1] + min(moment, end) - begin


def _correlation(event: Event) -> Any:
    return (event.get("args") or {}).get("correlation")


def _told(events: Iterable[Event]) -> list[Event]:
    """What streams waited for, where that was recorded."""
    return [
        e for e in events
        if e.get("cat") == "cuda_sync" and {"wait_on_stream", "stream"} <= e.get("args", {}).keys()
    ]  # fmt: skip


def _operators(events: Iterable[Event]) -> Iterator[Event]:
    """On CPUs, operators that no other one called."""
    ends: defaultdict[Any, float] = defaultdict(float)
    for event in sorted(
        (e for e in events if e.get("cat") == "cpu_op"), key=lambda e: (e["ts"], -e["dur"])
    ):
        thread = event.get("pid")
        if event["ts"] >= ends[thread]:
            ends[thread] = event["ts"] + event["dur"]
            yield event


def _merged(spans: Iterable[Span]) -> Iterator[Span]:
    """The union of intervals.

    >>> list(_merged([(0.0, 2.0), (1.0, 3.0), (5.0, 6.0)]))
    [(0.0, 3.0), (5.0, 6.0)]
    """
    begin = end = None
    for a, b in sorted(spans):
        if end is None or begin is None or a > end:
            if begin is not None and end is not None:
                yield begin, end
            begin, end = a, b
        end = max(end, b)
    if begin is not None and end is not None:
        yield begin, end


def _inside(spans: tuple[Span, ...], moment: float) -> bool:
    place = bisect_right(spans, moment, key=lambda span: span[0])
    return place > 0 and moment < spans[place - 1][1]
