"""Transfers hidden behind computation: what a role has in flight and no line of its account."""

from collections import defaultdict

import numpy as np

from sim.engine.accounts import Account
from sim.engine.record import Record
from sim.engine.tracks import Floats
from sim.program.causes import Cause

_ROUNDING = 1e-9


def hidden(record: Record, role: int, account: Account) -> dict[Cause, float]:
    """Seconds of a step by cause in which transfers of a role are in flight without making it wait:
    in flight, times that overlap counted once, and inside passes, less what the account has."""
    busy = dict(_busy(record, role))
    if record.base is not None:
        before = _busy(record.base, role)
        busy = {cause: (seconds - before[cause]) / record.more for cause, seconds in busy.items()}
    beside = {cause: seconds - account.get(cause, 0.0) for cause, seconds in busy.items()}
    return {
        cause: seconds
        for cause, seconds in beside.items()
        if seconds > _ROUNDING * record.step_time
    }


def _busy(record: Record, role: int) -> defaultdict[Cause, float]:
    """Seconds of communication by cause, inside passes and in flight."""
    seconds: defaultdict[Cause, float] = defaultdict(float)
    flights: defaultdict[Cause, list[tuple[Floats, Floats]]] = defaultdict(list)
    for track in (track for track in record.tracks if track.role == role):
        rows = track.parts[track.parts >= 0]
        for row, count in zip(*np.unique(rows, return_counts=True), strict=True):
            for cause, each in record.parts[row].items():
                if cause.kind == "communication":
                    seconds[cause] += int(count) * each
        for kind in np.unique(track.transfers[track.transfers >= 0]).tolist():
            at = track.transfers == kind
            flights[record.kinds[kind][0]].append((track.begun[at], track.arrived[at]))
    for cause, found in flights.items():
        begun, arrived = (np.concatenate(column) for column in zip(*found, strict=True))
        seconds[cause] += covered(begun, arrived)
    return seconds


def covered(begin: Floats, end: Floats) -> float:
    """The length of the union of intervals.

    >>> covered(np.array([0.0, 1.0, 5.0]), np.array([2.0, 3.0, 6.0]))
    4.0
    """
    order = np.argsort(begin)
    begin, latest = begin[order], np.maximum.accumulate(end[order])
    before = np.concatenate([begin[:1], latest[:-1]])
    return float(np.maximum(latest - np.maximum(begin, before), 0.0).sum())
