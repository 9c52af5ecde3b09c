"""Where the seconds went: every role's step split into causes that add up to the whole.

Compute, recomputation, communication inside a pass and the optimizer come from the passes' own
parts; what a pass lasts beyond them is the host's launches. While the compute stream runs nothing,
time belongs to the transfer in flight that it waits for (exposed communication), else to the
peers it waits for: other stages' passes (bubble) or slower replicas (stragglers).

Communication is overlapped where a role has a transfer in flight and its account no line of it.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sim.engine.record import Record
from sim.engine.timeline import Role
from sim.engine.tracks import COMMUNICATION, Floats, Indices, Track
from sim.program.causes import BUBBLE, HOST, PIPELINE, STRAGGLERS, WAITING, Cause
from sim.program.operations import COMPUTE_STREAM

_ROUNDING = 1e-12

Account = dict[Cause, float]


def accounts(record: Record) -> list[Account]:
    """Per role, seconds by cause; each adds up to `record.step_time`."""
    if record.base is None:
        return _accounts(record)
    whole, before = _accounts(replace(record, period=None)), _accounts(record.base)
    return [_each(*columns, record.more) for columns in zip(whole, before, strict=True)]


def _each(whole: Account, before: Account, more: int) -> Account:
    """Seconds that each of so many further steps took."""
    least = _ROUNDING * sum(whole.values())
    beyond = {cause: seconds - before.get(cause, 0.0) for cause, seconds in whole.items()}
    return {cause: seconds / more for cause, seconds in beyond.items() if abs(seconds) > least}


def _accounts(record: Record) -> list[Account]:
    tracks: list[list[Track]] = [[] for _ in record.roles]
    for track in record.tracks:
        tracks[track.role].append(track)
    return [_Accountant(record, streams).account() for streams in tracks]


def blame_stragglers(accounts: Sequence[Account], healthy: Sequence[Account]) -> None:
    """Move to the stragglers what a role waits for other stages beyond what it does without them.

    `healthy` are the same roles' accounts on a machine where nothing is slow.
    """
    for account, before in zip(accounts, healthy, strict=True):
        excess = account.get(BUBBLE, 0.0) - before.get(BUBBLE, 0.0)
        if excess > 0.0:
            account[BUBBLE] -= excess
            account[STRAGGLERS] = account.get(STRAGGLERS, 0.0) + excess


def critical_role(record: Record) -> Role:
    """The role whose last operation ends last; among ties the one with the lowest rank. Where a
    pipeline does not drain, it is the one that computes longest."""
    ends = [0.0] * len(record.roles)
    for track in record.tracks:
        if record.base is not None:
            running = track.parts != COMMUNICATION
            ends[track.role] += float((track.end - track.start)[running].sum())
        elif len(track.end):
            ends[track.role] = max(ends[track.role], float(track.end.max()))
    latest = max(ends) * (1.0 - _ROUNDING)
    return min(
        (role for role in record.roles if ends[role.index] >= latest),
        key=lambda role: role.first_rank,
    )


def bubble_fraction(record: Record, accounts: Sequence[Account]) -> float:
    """Share of stage-seconds spent waiting for other stages' passes.

    Causes outside of the pipeline (optimizer, data-parallel communication, straggler waits) are
    left out of both sides, so that equal stages without communication give (p-1)/(m+p-1)
    (Narayanan et al. 2021, section 2.2).
    """
    bubble = total = 0.0
    for role, account in zip(record.roles, accounts, strict=True):
        bubble += role.ranks * account.get(BUBBLE, 0.0)
        outside = sum(seconds for cause, seconds in account.items() if cause.outside_pipeline)
        total += role.ranks * (record.step_time - outside)
    return bubble / total if total > 0 else 0.0


@dataclass(frozen=True, slots=True)
class _Waits:
    """Intervals in which the compute stream runs nothing, and what was in flight [waits, most]."""

    begin: Floats
    end: Floats
    kinds: Indices
    begun: Floats
    arrived: Floats


class _Accountant:
    """One role's tracks, and its account while it is written."""

    def __init__(self, record: Record, tracks: Iterable[Track]) -> None:
        self.record = record
        self.compute = next((t for t in tracks if t.stream == COMPUTE_STREAM), None)
        self.beside = [track for track in tracks if track.stream != COMPUTE_STREAM]
        self.pipeline = any(role.stage for role in record.roles)
        self.uneven = any(role.slowdown != 1.0 for role in record.roles)
        self._seconds: defaultdict[Cause, float] = defaultdict(float)

    def account(self) -> Account:
        """Seconds by cause, those that are none left out."""
        if self.compute is not None:
            self._runs(self.compute)
            for waits in (self._meetings(self.compute), self._gaps(self.compute)):
                self._wait(waits)
        else:
            self._wait(self._between(np.array([0.0]), np.array([self.record.end])))
        self._overlap(self.record.end - self.record.step_time)
        least = _ROUNDING * self.record.end
        return {cause: seconds for cause, seconds in self._seconds.items() if seconds > least}

    def _overlap(self, seconds: float) -> None:
        """Take off what the steps before and after overlap: waiting before the first pass, or for
        others to end."""
        for cause in (BUBBLE, WAITING, PIPELINE):
            off = min(seconds, self._seconds[cause])
            self._seconds[cause] -= off
            seconds -= off

    def _runs(self, track: Track) -> None:
        """Computations by their parts; what they last longer is the host's."""
        running = track.parts != COMMUNICATION
        rows, lasted = track.parts[running], (track.end - track.start)[running]
        counts = np.bincount(rows, minlength=len(self.record.parts))
        seconds = np.bincount(rows, weights=lasted, minlength=len(self.record.parts))
        for row in np.flatnonzero(counts).tolist():
            parts, count = self.record.parts[row], int(counts[row])
            for cause, each in parts.items():
                self._seconds[cause] += count * each
            left = float(seconds[row]) - count * sum(parts.values())
            if left > _ROUNDING * self.record.end:
                self._seconds[HOST] += left

    def _meetings(self, track: Track) -> _Waits:
        """Communications on the compute stream."""
        meeting = track.parts == COMMUNICATION
        return _Waits(
            track.start[meeting],
            track.end[meeting],
            track.transfers[meeting],
            track.begun[meeting],
            track.arrived[meeting],
        )

    def _gaps(self, track: Track) -> _Waits:
        """Between its steps, the compute stream waits for other streams."""
        begin = np.concatenate(([0.0], track.end))
        end = np.concatenate((track.start, [self.record.end]))
        gap = end - begin > _ROUNDING * self.record.end
        return self._between(begin[gap], end[gap])

    def _between(self, begin: Floats, end: Floats) -> _Waits:
        """Gaps with the transfers of those streams whose communication ended just when they did."""
        columns = [column for track in self.beside for column in self._blocking(track, begin, end)]
        kinds, begun, arrived = (
            np.stack(rows, axis=1) if rows else np.empty((len(begin), 0), dtype=kind)
            for rows, kind in zip(
                zip(*columns, strict=True) if columns else ((), (), ()),
                (np.intp, np.float64, np.float64),
                strict=True,
            )
        )
        return _Waits(begin, end, kinds, begun, arrived)

    def _blocking(
        self, track: Track, begin: Floats, end: Floats
    ) -> Iterator[tuple[Indices, Floats, Floats]]:
        """The flights of a stream during gaps, the last first: one column at a time."""
        if not len(track.end) or not len(end):
            return
        close = _ROUNDING * self.record.end
        last = np.searchsorted(track.end, end + close, side="right") - 1
        blocks = (last >= 0) & (track.end[last] >= end - close)
        while blocks.any():
            for column in range(track.transfers.shape[1]):
                kinds = np.where(blocks, track.transfers[last, column], -1)
                yield kinds, track.begun[last, column], track.arrived[last, column]
            last = np.maximum(last - 1, -1)
            blocks = blocks & (last >= 0) & (track.end[last] > begin)

    def _wait(self, waits: _Waits) -> None:
        """Split intervals into transfers in flight and waiting for those who take part."""
        if not len(waits.begin):
            return
        clock = waits.begin.copy()
        order = self._by_arrival(waits)
        rows = np.arange(len(clock))
        for column in order.T:
            kinds = waits.kinds[rows, column]
            there = kinds >= 0
            start = np.where(there, np.maximum(waits.begun[rows, column], clock), clock)
            stop = np.where(there, np.minimum(waits.arrived[rows, column], waits.end), clock)
            flies = stop > clock
            start = np.minimum(start, stop)
            for kind in np.unique(kinds[flies]).tolist():
                of_kind = flies & (kinds == kind)
                self._peers(clock[of_kind], start[of_kind], *self.record.kinds[kind])
                self._add(self.record.kinds[kind][0], float((stop - start)[of_kind].sum()))
            clock = np.where(flies, stop, clock)
        self._peers(clock, waits.end, WAITING, "")

    def _by_arrival(self, waits: _Waits) -> Indices:
        """Transfers in the order of their arrival; ties, which are common, go to the transfer that
        began first."""
        there, end = waits.kinds >= 0, waits.end[:, None]
        begun = np.where(there, waits.begun, np.inf)
        arrived = np.where(there, waits.arrived, np.inf)
        last = arrived >= end - _ROUNDING * self.record.end
        return np.lexsort((begun, np.where(last, end, arrived)), axis=1)

    def _peers(self, begin: Floats, end: Floats, cause: Cause, kind: str) -> None:
        """Waiting for peers: for their passes a bubble, afterwards for whatever else they do."""
        others = self.record.passes_end if self.pipeline else 0.0  # passes of other stages
        passes_until = np.minimum(np.maximum(others, begin), end)
        replicas = kind not in ("send", "") and self.uneven
        self._add(STRAGGLERS if replicas else BUBBLE, float((passes_until - begin).sum()))
        self._add(STRAGGLERS if replicas else cause, float((end - passes_until).sum()))

    def _add(self, cause: Cause, seconds: float) -> None:
        self._seconds[cause] += seconds


_LEAST = 1e-9


def hidden(record: Record, role: int, account: Account) -> dict[Cause, float]:
    """Seconds of a step by cause in which transfers of a role are in flight without making it wait:
    in flight, times that overlap counted once, and inside passes, less what the account has."""
    busy = dict(_busy(record, role))
    if record.base is not None:
        before = _busy(record.base, role)
        busy = {cause: (seconds - before[cause]) / record.more for cause, seconds in busy.items()}
    beside = {cause: seconds - account.get(cause, 0.0) for cause, seconds in busy.items()}
    return {
        cause: seconds for cause, seconds in beside.items() if seconds > _LEAST * record.step_time
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
