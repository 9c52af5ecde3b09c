"""Which reason does each second of a replayed rank have?

If the trace has several steps, the seconds from the end of the first step to the end of the last
step count. If a kernel computes, the second is compute. Otherwise, if a collective is in flight,
the second is exposed communication, or waiting for other ranks until the collective's last rank has
come. Otherwise the device has nothing to do: these seconds are the host's until it has launched the
next kernel, and then idle (launch latency, gaps between kernels, events).
"""

from collections.abc import Sequence

import numpy as np

from sim.engine.accounts import covered
from sim.engine.record import Record
from sim.engine.tracks import Track
from sim.jobs.traces.program import HOST_STREAM
from sim.program.causes import COMMUNICATION, COMPUTE, HOST, Cause

Spans = list[tuple[float, float]]
REASONS = ("compute", "exposed communication", "other ranks", "host", "idle")


def account(record: Record, role: int, begin: float, end: float) -> dict[str, float]:
    """Seconds by reason, which add up to `end` - `begin`, and the seconds of "overlapped
    communication"."""
    tracks = [track for track in record.tracks if track.role == role]
    computed = [span for track in tracks for span in _computed(record, track, COMPUTE)]
    on_host = [span for track in tracks for span in _computed(record, track, HOST)]
    sent = [span for track in tracks for span in _flights(track)]
    sent += [span for track in tracks for span in _computed(record, track, COMMUNICATION)]
    late = [(start, begun) for track in tracks for start, begun in _late(track)]
    computed, on_host, sent, late = (
        [(max(a, begin), min(b, end)) for a, b in spans if b > begin and a < end]
        for spans in (computed, on_host, sent, late)
    )
    host = _launches(record, tracks, role)
    compute, with_sent = _length(computed), _length(computed + sent)
    busy = _length(computed + sent + late)
    waited = _length(computed + sent + late + on_host) - busy
    waited += _host_waits(computed + sent + late + on_host, host, begin, end)
    seconds = (compute, with_sent - compute, busy - with_sent, waited, end - begin - busy - waited)
    found = {
        why: max(each, 0.0) for why, each in zip(REASONS, seconds, strict=True)
    }  # rounding errors
    return found | {"overlapped communication": _length(sent) - found["exposed communication"]}


def _length(spans: Spans) -> float:
    if not spans:
        return 0.0
    begin, end = np.array(spans).T
    return covered(begin, end)


def _computed(record: Record, track: Track, cause: Cause) -> Spans:
    """Spans of a cause. A step begins with the lag of its kernel and ends with the kernel."""
    if track.stream == HOST_STREAM:
        return []
    rows = zip(track.parts.tolist(), track.end.tolist(), strict=True)
    return [
        (end - seconds, end)
        for row, end in rows
        if row >= 0 and (seconds := record.parts[row].get(cause, 0.0))
    ]


def _flights(track: Track) -> Spans:
    there = track.transfers >= 0
    return list(zip(track.begun[there].tolist(), track.arrived[there].tolist(), strict=True))


def _late(track: Track) -> Spans:
    """Spans from the rank's arrival at a collective to the arrival of the group's last rank."""
    if not track.transfers.shape[1]:
        return []
    met = track.transfers[:, 0] >= 0
    return list(zip(track.start[met].tolist(), track.begun[met, 0].tolist(), strict=True))


def _launches(record: Record, tracks: Sequence[Track], role: int) -> Spans:
    """The moment of each kernel's launch, and the moment at which its step ended."""
    program = next(
        role_program for role_program in record.program().roles if role_program.role.index == role
    )
    ends: dict[int, float] = {}
    for track in tracks:
        for step, end in zip(program.streams[track.stream], track.end.tolist(), strict=True):
            ends[step.index] = end
    on_host = {step.index for step in program.streams.get(HOST_STREAM, ())}
    return [
        (ends[cause], ends[step.index])
        for stream, steps in program.streams.items()
        if stream != HOST_STREAM
        for step in steps
        for cause in step.after
        if cause in on_host
    ]


def _host_waits(busy: Spans, launches: Spans, begun: float, end: float) -> float:
    """Seconds in which the device has nothing to do because the next kernel is not yet launched."""
    launched = np.array(sorted(moment for moment, _ in launches) or [0.0])
    waited, free = 0.0, begun
    for begin, until in [*sorted(busy), (end, end)]:
        if begin > free:
            last = (
                launched[np.searchsorted(launched, begin, side="right") - 1] if begin < end else end
            )
            waited += min(max(float(last) - free, 0.0), begin - free)
        free = max(free, until)
    return waited
