"""The steps of a profiled rank: its kernels in the order in which they were launched, and the calls
of its host."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sim.jobs.traces.kineto import CALLS, Event, correlation_of, gloo_of
from sim.jobs.traces.removed import Removed
from sim.jobs.traces.waits import waits_of

DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
CLOSE = 1.0  # us: clocks of host and device agree about as well (CUPTI's own conversion)


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the host that launched kernels, or waited (for `everything`)."""

    begin: float
    end: float
    kernels: tuple[int, ...]
    everything: bool


class ProfiledSteps:
    """One rank; times in us. Kernel n was launched by the call `launch[n]` (None: by none in the
    trace), is the event `found[n]`, and was known to the device at `points[n]`. Collectives of gloo
    were `begun` by other kernels, operators of the host, and `asked` for at those moments."""

    def __init__(
        self, document: Mapping[str, Any], events: list[Event], begin: float, end: float,
        removed: Removed,
    ) -> None:  # fmt: skip
        self.begin, self.end, self.removed = begin, end, removed
        self.per_node = len(document.get("deviceProperties") or ())
        self.world = int((document.get("distributedInfo") or {}).get("world_size", 1))
        calls = [e for e in events if e.get("cat") in CALLS]
        launches = {n: e for e in calls if (n := correlation_of(e)) is not None}
        found = [e for e in events if e.get("cat") in DEVICE]
        self.on_device = bool(found)
        found = found or [*_operators(events), *filter(is_gloo, events)]
        found = [e for e in found if self._asked_within(e, launches)]
        pairs = ((launches.get(correlation_of(e)), e) for e in found)
        order = sorted(pairs, key=lambda pair: ((pair[0] or pair[1])["ts"], pair[1]["ts"]))
        self.launch, self.found = [launch for launch, _ in order], [event for _, event in order]
        self.ends = [e["ts"] + e["dur"] for e in self.found]
        self.begun = self._begun()
        self.asked = sorted(e["ts"] for e in events if str(e["name"]).startswith("c10d::"))
        self.waits = waits_of(events)
        self.calls = sorted(
            self._launches_and_waits(calls), key=lambda call: (call.begin, call.end)
        )
        self.points = self._points()

    def _begun(self) -> dict[int, int]:
        """The operator in or behind which each collective of gloo begins."""
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

    def _asked_within(self, event: Event, launches: Mapping[Any, Event]) -> bool:
        """Whether the host asked for it in the steps."""
        launch = launches.get(correlation_of(event), event)
        if launch is event and event.get("cat") in DEVICE and launches:
            return False
        return bool(self.begin <= launch["ts"] < self.end)

    def _points(self) -> list[float]:
        """When the device knew of each kernel: as the call that launched it ends, or the first of
        these begins."""
        asked = (self.found[self.begun.get(n, n)] for n in range(len(self.found)))
        points = [float(event["ts"]) for event in asked]
        for call in self.calls:
            first = min((points[n] for n in call.kernels), default=0.0)
            for n in call.kernels:
                points[n] = min(first, call.end)
        return points

    def asked_for(self, n: int) -> float:
        """When the host asked for kernel n."""
        return float((self.launch[n] or self.found[n])["ts"])

    def stream(self, event: Event) -> str:
        """The stream that it ran on."""
        if event.get("cat") not in DEVICE:
            return f"gloo {event.get('tid')}" if is_gloo(event) else "operators"
        return f"stream {(event.get('args') or {}).get('stream', event.get('tid'))}"


def is_gloo(event: Event) -> bool:
    """Whether it is a collective of gloo, of which what it sends was recorded."""
    return gloo_of(event, 1) is not None


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
