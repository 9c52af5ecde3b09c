"""What did a profiled rank do: kernels, calls of the host, waits of streams?

Kernels are in the order of their launches. A kernel whose launch was not recorded follows the
kernel before it on its stream. If its stream has no earlier kernel, it is left over from before the
steps. Streams wait by `cudaStreamWaitEvent`, as CUPTI saw it. Spans of the host's time can be left
out (`RemovedSpans`).
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from math import inf
from operator import itemgetter
from typing import Any

from sim.config.dataclass import dataclass
from sim.jobs.traces.described import CALLS, Event, correlation_of
from sim.jobs.traces.kineto import gloo_of, outermost


@dataclass(frozen=True, slots=True)
class Wait:
    """At a `moment` (us) the host tells a `stream` to wait for everything that it launched on
    another stream (`on`) before `until`. None stands for any stream."""

    moment: float
    stream: str | None = None
    on: str | None = None
    until: float = inf


def waits_of(events: Sequence[Event]) -> list[Wait]:
    """All waits in the order of the host.

    Where synchronisation was recorded, a wait names the call that recorded its event
    (`wait_on_cuda_event_record_corr_id`), the event's stream, or both. Each is -1 where CUPTI did
    not see it, as for events from before the trace. Newer traces never name the stream.
    """
    told = [
        e
        for e in events
        if e.get("cat") == "cuda_sync" and "wait_on_stream" in (e.get("args") or {})
    ]
    if told:
        calls = (e for e in events if "EventRecord" in e["name"])
        records = {n: e for e in calls if (n := correlation_of(e)) is not None}
        waits = [_told(e, records) for e in told if e["args"].get("stream", -1) >= 0]
    else:
        waits = [Wait(float(e["ts"])) for e in events if "StreamWaitEvent" in e["name"]]
    return sorted(waits, key=lambda wait: wait.moment)


def _told(event: Event, records: Mapping[Any, Event]) -> Wait:
    args = event["args"]
    on = args["wait_on_stream"]
    recorded = records.get(args.get("wait_on_cuda_event_record_corr_id"))
    return Wait(
        float(event["ts"]),
        f"stream {args['stream']}",
        f"stream {on}" if on >= 0 else None,
        inf if recorded is None else float(recorded["ts"]),
    )


Span = tuple[float, float]


class RemovedSpans:
    """The union of the spans of the host's time that are left out (us)."""

    def __init__(self, spans: Iterable[Span] = ()) -> None:
        self.spans = tuple(_merged(spans))
        self._before = [0.0, *accumulate(end - begin for begin, end in self.spans)]

    def __bool__(self) -> bool:
        return bool(self.spans)

    def __contains__(self, moment: float) -> bool:
        place = self._place(moment)
        return place > 0 and moment < self.spans[place - 1][1]

    def seconds_left(self, begin: float, end: float) -> float:
        """Seconds between two moments, without the removed spans.

        >>> RemovedSpans([(1e6, 2e6), (1.5e6, 3e6)]).seconds_left(0.0, 4e6)
        2.0
        """
        if end <= begin:
            return 0.0
        return (end - begin - self._until(end) + self._until(begin)) * 1e-6

    def _until(self, moment: float) -> float:
        """Removed microseconds before a moment."""
        place = self._place(moment)
        if not place:
            return 0.0
        begin, end = self.spans[place - 1]
        return self._before[place - 1] + min(moment, end) - begin

    def _place(self, moment: float) -> int:
        return bisect_right(self.spans, moment, key=lambda span: span[0])


def _merged(spans: Iterable[Span]) -> list[Span]:
    """The union of intervals.

    >>> _merged([(0.0, 2.0), (1.0, 3.0), (5.0, 6.0)])
    [(0.0, 3.0), (5.0, 6.0)]
    """
    merged: list[Span] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            first, last = merged.pop()
            begin, end = first, max(last, end)
        merged.append((begin, end))
    return merged


DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
OPERATORS = "operators"  # the stream of a CPU
CLOSE = 1.0  # us: the clocks of host and device differ by about as much after CUPTI's conversion


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the host that launched `kernels`, or waited; it may wait for `everything`."""

    begin: float
    end: float
    kernels: tuple[int, ...]
    everything: bool


class ProfiledSteps:
    """The steps of a rank; times in us.

    The host asked for kernel n at `moments[n]`, by the call `launch[n]` (None: no call in the
    trace). `found[n]` is the kernel's event. The device knew of the kernel at `points[n]`. The
    first `left` kernels are left over from before the steps. `begun` gives the operator in or after
    which a collective of gloo begins; `asked` are the moments at which the host called
    torch.distributed.
    """

    def __init__(
        self, document: Mapping[str, Any], events: list[Event], begin: float, end: float,
        removed: RemovedSpans,
    ) -> None:  # fmt: skip
        self.begin, self.end, self.removed = begin, end, removed
        self.per_node = len(document.get("deviceProperties") or ())
        self.world = int((document.get("distributedInfo") or {}).get("world_size", 1))
        calls = [e for e in events if e.get("cat") in CALLS]
        launches = {n: e for e in calls if (n := correlation_of(e)) is not None}
        found = [e for e in events if e.get("cat") in DEVICE]
        self.on_device = bool(found)
        operators = (e for e in events if e.get("cat") == "cpu_op")
        found = found or [*outermost(operators, "pid"), *filter(is_gloo, events)]
        order = sorted(self._moments(found, launches), key=itemgetter(0, 1))
        self.moments, self.found = [moment for moment, *_ in order], [event for *_, event in order]
        self.launch = [launches.get(correlation_of(event)) for event in self.found]
        self.left = bisect_left(self.moments, begin)
        self.ends = [e["ts"] + e["dur"] for e in self.found]
        self.begun = self._begun()
        self.asked = sorted(e["ts"] for e in events if str(e["name"]).startswith("c10d::"))
        self.waits = waits_of(events)
        self.calls = sorted(
            self._launches_and_waits(calls), key=lambda call: (call.begin, call.end)
        )
        self.points = self._points()

    def _begun(self) -> dict[int, int]:
        """The operator in or after which each collective of gloo begins."""
        begun, last = {}, None
        for n, event in enumerate(self.found):
            if not is_gloo(event):
                last = n
            elif last is not None:
                begun[n] = last
        return begun

    def _launches_and_waits(self, calls: Iterable[Event]) -> Iterator[Call]:
        launched: defaultdict[int, list[int]] = defaultdict(list)
        for n, launch in enumerate(self.launch):
            if launch is not None:
                launched[id(launch)].append(n)
        for e in calls:
            if id(e) in launched or "Synchronize" in e["name"]:
                kernels = tuple(launched.get(id(e), ()))
                yield Call(e["ts"], e["ts"] + e["dur"], kernels, "DeviceSync" in e["name"])

    def _moments(
        self, found: Iterable[Event], launches: Mapping[Any, Event]
    ) -> Iterator[tuple[float, float, Event]]:
        """When the host asked for each event of the steps (its begin if unknown), and its begin."""
        streams: defaultdict[str, list[Event]] = defaultdict(list)
        for event in sorted(found, key=itemgetter("ts")):
            streams[self.stream(event)].append(event)
        for events in streams.values():
            asked = [launches.get(correlation_of(event)) for event in events]
            last = max((n for n, launch in enumerate(asked) if launch), default=-1)
            latest = -inf
            for n, (event, launch) in enumerate(zip(events, asked, strict=True)):
                if launch or last < 0:
                    latest = float((launch or event)["ts"])
                left = event["ts"] < self.begin and event["ts"] + event["dur"] <= self.begin
                if launch or (not left and (n < last or event["ts"] < self.end)):
                    yield latest, event["ts"], event

    def _points(self) -> list[float]:
        """When the device knew of each kernel: when the call that launched it ends, or when the
        first kernel of the call begins."""
        asked = (self.found[self.begun.get(n, n)] for n in range(len(self.found)))
        points = [float(event["ts"]) for event in asked]
        for call in self.calls:
            first = min((points[n] for n in call.kernels), default=0.0)
            for n in call.kernels:
                points[n] = min(first, call.end)
        return points

    def stream(self, event: Event) -> str:
        """The stream that an event ran on."""
        if event.get("cat") not in DEVICE:
            return f"gloo {event.get('tid')}" if is_gloo(event) else OPERATORS
        return f"stream {(event.get('args') or {}).get('stream', event.get('tid'))}"


def is_gloo(event: Event) -> bool:
    """Whether an event is a collective of gloo, with or without a recorded size."""
    return gloo_of(event, 1) is not None
