"""What streams of a profiled rank were made to wait for: `cudaStreamWaitEvent`, as CUPTI saw it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from sim.jobs.traces.kineto import Event, correlation_of


@dataclass(frozen=True, slots=True)
class Wait:
    """At a `moment` (us) a `stream` is told to wait for all that was launched `until` then `on`
    another; None: for any, where a trace does not say which."""

    moment: float
    stream: str | None = None
    on: str | None = None
    until: float = inf


def waits_of(events: Sequence[Event]) -> list[Wait]:
    """All of them in the host's order.

    Where synchronisation is recorded, what is waited for is the call that recorded it
    (`wait_on_cuda_event_record_corr_id`), its stream, or both; each is -1 where CUPTI saw none, as
    of what was recorded before the trace began. Newer traces never say the stream.
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
