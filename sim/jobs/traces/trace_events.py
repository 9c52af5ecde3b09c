"""What all events of a trace share: their type, and their clock."""

from typing import Any

Event = dict[str, Any]

TICK = 0.125  # us


def microseconds(seconds: float) -> float:
    """Seconds to the trace's unit, in multiples of 1/8 us.

    Doubles hold these exactly, so slices that touch still touch for a reader that adds start and
    duration, or counts nanoseconds.

    >>> microseconds(0.0123456789)
    12345.625
    """
    return round(seconds * 1e6 / TICK) * TICK


def metadata(what: str, pid: int, tid: int = 0, **args: Any) -> Event:
    """What a process or a thread is called, and where it stands."""
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "ts": 0, "args": args}
