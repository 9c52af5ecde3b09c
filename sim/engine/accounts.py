"""Where the seconds went: every role's step split into causes that add up to the whole.

Compute, recomputation, communication inside a pass and the optimizer come from the passes' own
parts; the rest of a pass's time belongs to the host's launches. While the compute stream runs
nothing, time belongs to the transfer in flight for which it waits (exposed communication). Without
such a transfer, it belongs to the peers for which the role waits: other stages' passes (bubble) or
slower replicas (stragglers).

Communication counts as overlapped while a role's transfer is in flight and the role does not wait.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sim.config.dataclass import dataclass
from sim.engine.record import Record
from sim.engine.timeline import Role
from sim.engine.tracks import COMMUNICATION, Floats, Indices, Runs, Track
from sim.program.causes import BUBBLE, HOST, PIPELINE, STRAGGLERS, WAITING, Cause
from sim.program.operations import COMPUTE_STREAM

_ROUNDING = 1e-12  # share of a time; smaller differences are rounding
_FEW = 8  # runs; with more, the joined arrays of several roles would not fit a cache

Account = dict[Cause, float]


def accounts(record: Record) -> list[Account]:
    """Return the account of each role: seconds by cause, which add up to `record.step_time`."""
    if record.base is None:
        return _only(record)
    whole, before = _only(replace(record, period=None)), _only(record.base)
    return [_each(*both, record.more) for both in zip(whole, before, strict=True)]


def _only(record: Record) -> list[Account]:
    return [of_run(found, 0) for found in account_runs(record.runs)]


def account_runs(runs: Runs) -> list[dict[Cause, Floats]]:
    """Return for each role the seconds by cause in each run [columns]."""
    parts = _table(runs)
    alike: dict[object, list[tuple[int, list[Track]]]] = defaultdict(list)
    for role, tracks in enumerate(runs.by_role()):
        alike[_shape_of(tracks) if len(runs.end) <= _FEW else role].append((role, tracks))
    found: dict[int, dict[Cause, Floats]] = {}
    for members in alike.values():
        roles, joined = zip(*members, strict=True)
        found |= zip(roles, _Accountant(runs, parts, joined).accounts(), strict=True)
    return [found[role] for role in range(len(runs.roles))]


def _shape_of(tracks: Sequence[Track]) -> object:
    """A key that is equal for roles whose tracks can be columns of the same arrays."""
    compute = [(t.parts != COMMUNICATION).tobytes() for t in tracks if t.stream == COMPUTE_STREAM]
    sizes = [(len(t.start), t.transfers.shape, t.stream == COMPUTE_STREAM) for t in tracks]
    return tuple(compute), tuple(sizes)


def of_run(found: Mapping[Cause, Floats], column: int) -> Account:
    """The account of one run, without causes that took no time."""
    listed = ((cause, float(row[column])) for cause, row in found.items())
    return {cause: seconds for cause, seconds in listed if seconds}


def _each(whole: Account, before: Account, more: int) -> Account:
    """The account of a single step, if the run `whole` has `more` steps than the run `before`."""
    least = _ROUNDING * sum(whole.values())
    beyond = {cause: seconds - before.get(cause, 0.0) for cause, seconds in whole.items()}
    return {cause: seconds / more for cause, seconds in beyond.items() if abs(seconds) > least}


def blame_stragglers(accounts: Sequence[Account], healthy: Sequence[Account]) -> None:
    """Count as stragglers' time the part of a role's bubble that a healthy machine does not have.

    `healthy` are the same roles' accounts on a machine where nothing is slow.
    """
    for account, before in zip(accounts, healthy, strict=True):
        excess = account.get(BUBBLE, 0.0) - before.get(BUBBLE, 0.0)
        if excess > 0.0:
            account[BUBBLE] -= excess
            account[STRAGGLERS] = account.get(STRAGGLERS, 0.0) + excess


def critical_role(record: Record) -> Role:
    """The role whose last operation ends last; among ties, the role with the lowest rank. If
    pipelines do not drain, it is the role that computes longest."""
    runs = record.runs
    ends = _last_ends(runs) if record.base is None else _computing(runs)
    return runs.roles[int(_latest(runs.roles, ends)[0])]


def critical_roles(runs: Runs) -> Indices:
    """The critical role of each run [columns]; the pipelines of all runs drain."""
    return _latest(runs.roles, _last_ends(runs))


def _last_ends(runs: Runs) -> Floats:
    """When the last operation of each role ends [roles, columns]."""
    ends = np.zeros((len(runs.roles), len(runs.end)))
    for track in runs.tracks:
        np.maximum(ends[track.role], track.end.max(axis=0, initial=0.0), out=ends[track.role])
    return ends


def _computing(runs: Runs) -> Floats:
    """The seconds of each role's computations [roles, columns]."""
    seconds = np.zeros((len(runs.roles), len(runs.end)))
    for track in runs.tracks:
        running = track.parts != COMMUNICATION
        seconds[track.role] += (track.end - track.start)[running].sum(axis=0)
    return seconds


def _latest(roles: Sequence[Role], ends: Floats) -> Indices:
    """The role of the lowest rank among the roles that end last [columns]."""
    order = np.argsort([role.first_rank for role in roles])
    late = ends >= ends.max(axis=0) * (1.0 - _ROUNDING)
    latest: Indices = order[late[order].argmax(axis=0)]
    return latest


def bubble_fraction(record: Record, accounts: Sequence[Account]) -> float:
    """Share of stage-seconds spent waiting for other stages' passes.

    Causes outside of the pipeline (optimizer, data-parallel communication, straggler waits) are
    left out of both sums, so that equal stages without communication give (p-1)/(m+p-1)
    (Narayanan et al. 2021, section 2.2).
    """
    return float(bubble_fractions(record.roles, np.array([record.step_time]), accounts)[0])


def bubble_fractions(
    roles: Sequence[Role], step: Floats, accounts: Sequence[Mapping[Cause, float | Floats]]
) -> Floats:
    """The bubble fractions of runs [columns] whose steps take `step` seconds."""
    bubble, total = np.zeros((2, len(step)))
    for role, account in zip(roles, accounts, strict=True):
        bubble += role.ranks * np.asarray(account.get(BUBBLE, 0.0))
        outside = sum(seconds for cause, seconds in account.items() if cause.outside_pipeline)
        total += role.ranks * (step - outside)
    shares: Floats = np.where(total > 0.0, bubble, 0.0) / np.where(total > 0.0, total, 1.0)
    return shares


@dataclass(frozen=True, slots=True)
class _Waits:
    """Intervals in which the compute stream runs nothing [waits, columns], and the transfers in
    flight meanwhile: their kinds and when they began and arrived [waits, most transfers,
    columns]."""

    begin: Floats
    end: Floats
    kinds: Indices
    begun: Floats
    arrived: Floats


class _Accountant:
    """Writes the accounts of roles whose tracks have equal shapes. The columns of all these roles
    lie side by side in the same arrays."""

    def __init__(
        self, runs: Runs, parts: tuple[list[Cause], Floats], tracks: Sequence[Sequence[Track]]
    ) -> None:
        self.runs, self.parts, self.roles, self.count = runs, parts, tracks, len(tracks)
        self.uneven = any(role.slowdown != 1.0 for role in runs.roles)
        joined = [_side_by_side(each) for each in zip(*tracks, strict=True)]
        self.compute = next((t for t in joined if t.stream == COMPUTE_STREAM), None)
        self.beside = [track for track in joined if track.stream != COMPUTE_STREAM]
        self.end, self.step = np.tile(runs.end, self.count), np.tile(runs.step, self.count)
        pipeline = any(role.stage for role in runs.roles)
        self.passes_end = np.tile(runs.passes_end, self.count) * pipeline
        self.close = _ROUNDING * self.end
        self._seconds: defaultdict[Cause, float | Floats] = defaultdict(float)

    def accounts(self) -> Iterator[dict[Cause, Floats]]:
        """Seconds by cause of each role."""
        if self.compute is not None:
            self._runs(self.compute)
            for waits in (self._meetings(self.compute), self._gaps(self.compute)):
                self._wait(waits)
        else:
            whole = self.end[None]
            self._wait(self._between(np.zeros_like(whole), whole))
        if (overlapped := self.end - self.step).any():
            self._overlap(overlapped)
        found = ((cause, seconds + 0.0 * self.close) for cause, seconds in self._seconds.items())
        clear = {cause: seconds * (seconds > self.close) for cause, seconds in found}
        split = {cause: seconds.reshape(self.count, -1) for cause, seconds in clear.items()}
        for role in range(self.count):
            yield {cause: seconds[role] for cause, seconds in split.items()}

    def _overlap(self, seconds: Floats) -> None:
        """Subtract waits that overlap the steps before and after: waiting before the first pass,
        or for other roles to end."""
        for cause in (BUBBLE, WAITING, PIPELINE):
            off = np.minimum(seconds, self._seconds[cause])
            self._add(cause, -off)
            seconds = seconds - off

    def _runs(self, track: Track) -> None:
        """Add the seconds of computations by their parts; the rest of their time is the host's."""
        running, columns = track.parts != COMMUNICATION, len(self.runs.end)
        computing = [next(t for t in tracks if t.stream == COMPUTE_STREAM) for tracks in self.roles]
        causes, table = self.parts
        most = len(table)
        rows = np.stack([each.parts[running] for each in computing], axis=1)
        rows = (rows + most * np.arange(self.count)).ravel()
        counts = np.bincount(rows, minlength=self.count * most).reshape(self.count, most)
        lasted = (track.end - track.start)[running].reshape(len(rows), columns).T
        seconds = np.stack([np.bincount(rows, run, counts.size) for run in lasted], axis=1)
        spent = np.einsum("rp,pck->crk", counts, table)
        for cause, each in zip(causes, spent, strict=True):
            self._add(cause, np.broadcast_to(each, (self.count, columns)).ravel())
        left = seconds.reshape(self.count, most, columns)
        left = left - counts[..., None] * table.sum(axis=1)
        self._add(HOST, (left * (left > _ROUNDING * self.runs.end)).sum(axis=1).ravel())

    def _meetings(self, track: Track) -> _Waits:
        """The communications on the compute stream, as waits."""
        meeting = track.parts == COMMUNICATION
        return _Waits(
            track.start[meeting],
            track.end[meeting],
            track.transfers[meeting],
            track.begun[meeting],
            track.arrived[meeting],
        )

    def _gaps(self, track: Track) -> _Waits:
        """The gaps between steps of the compute stream, in which it waits for other streams."""
        begin = np.concatenate((np.zeros_like(self.end)[None], track.end))
        end = np.concatenate((track.start, self.end[None]))
        gap = end - begin > self.close
        some = gap.any(axis=1)
        return self._between(begin[some], np.where(gap, end, begin)[some])

    def _between(self, begin: Floats, end: Floats) -> _Waits:
        """Gaps as waits, with the transfers of communications that ended together with a gap."""
        columns = [column for track in self.beside for column in self._blocking(track, begin, end)]
        kinds, begun, arrived = (
            np.stack(rows, axis=1) if rows else np.empty((len(begin), 0, len(self.close)), dtype)
            for rows, dtype in zip(
                zip(*columns, strict=True) if columns else ((), (), ()),
                (np.intp, np.float64, np.float64),
                strict=True,
            )
        )
        return _Waits(begin, end, kinds, begun, arrived)

    def _blocking(
        self, track: Track, begin: Floats, end: Floats
    ) -> Iterator[tuple[Indices, Floats, Floats]]:
        """Yield kinds, beginnings and ends of the transfers that a stream had in flight during
        gaps, the last first. Each yield has one transfer for each gap; kind -1 means none."""
        if not len(track.end) or not len(end):
            return
        runs = np.arange(end.shape[1])
        last = _last_until(track.end, end + self.close)
        blocks = (last >= 0) & (track.end[last, runs] >= end - self.close) & (end > begin)
        while blocks.any():
            for column in range(track.transfers.shape[1]):
                kinds = np.where(blocks, track.transfers[last, column, runs], -1)
                yield kinds, track.begun[last, column, runs], track.arrived[last, column, runs]
            last = np.maximum(last - 1, -1)
            blocks = blocks & (last >= 0) & (track.end[last, runs] > begin)

    def _wait(self, waits: _Waits) -> None:
        """Split waits into seconds of transfers in flight and seconds of waiting for peers."""
        if not len(waits.begin):
            return
        clock = waits.begin
        for kinds, begun, arrived in self._by_arrival(waits):
            there = kinds >= 0
            start = np.where(there, np.maximum(begun, clock), clock)
            stop = np.where(there, np.minimum(arrived, waits.end), clock)
            flies = stop > clock
            start = np.minimum(start, stop)
            for kind in np.flatnonzero(np.bincount(kinds[flies])).tolist():
                of_kind = flies & (kinds == kind)
                self._peers(clock, np.where(of_kind, start, clock), *self.runs.kinds[kind])
                self._add(self.runs.kinds[kind][0], ((stop - start) * of_kind).sum(axis=0))
            clock = np.where(flies, stop, clock)
        self._peers(clock, waits.end, WAITING, "")

    def _by_arrival(self, waits: _Waits) -> Iterator[tuple[Indices, Floats, Floats]]:
        """Yield kinds, beginnings and ends of transfers in the order of arrival; among ties, in the
        order in which they began."""
        told: Sequence[Any] = waits.kinds, waits.begun, waits.arrived
        if waits.kinds.shape[1] > 1:
            there, end = waits.kinds >= 0, waits.end[:, None]
            begun, arrived = (np.where(there, of, np.inf) for of in told[1:])
            last = arrived >= end - self.close
            order = np.lexsort((begun, np.where(last, end, arrived)), axis=1)
            told = [np.take_along_axis(of, order, axis=1) for of in told]
        yield from zip(*(of.swapaxes(0, 1) for of in told), strict=True)

    def _peers(self, begin: Floats, end: Floats, cause: Cause, kind: str) -> None:
        """Add a wait for peers: a bubble until the passes of all stages have ended, then seconds of
        `cause`. Waits for slower replicas count as stragglers instead."""
        passes_until = np.minimum(np.maximum(self.passes_end, begin), end)  # of other stages
        replicas = kind not in ("send", "") and self.uneven
        self._add(STRAGGLERS if replicas else BUBBLE, (passes_until - begin).sum(axis=0))
        self._add(STRAGGLERS if replicas else cause, (end - passes_until).sum(axis=0))

    def _add(self, cause: Cause, seconds: float | Floats) -> None:
        self._seconds[cause] = self._seconds[cause] + seconds


def _side_by_side(tracks: Sequence[Track]) -> Track:
    """Join tracks of several roles as columns of one track; transfers get columns, too."""
    first, columns = tracks[0], tracks[0].start.shape[1]
    if len(tracks) == 1:
        kinds = np.broadcast_to(first.transfers[..., None], (*first.transfers.shape, columns))
        return replace(first, transfers=kinds)
    start, end, begun, arrived = (
        np.concatenate([getattr(track, name) for track in tracks], axis=-1)
        for name in ("start", "end", "begun", "arrived")
    )
    transfers = np.repeat(np.stack([track.transfers for track in tracks], axis=-1), columns, axis=2)
    return replace(first, start=start, end=end, begun=begun, arrived=arrived, transfers=transfers)


def _table(runs: Runs) -> tuple[list[Cause], Floats]:
    """The causes of computations, and their seconds [parts, causes, columns or 1]."""
    causes = list(dict.fromkeys(cause for parts in runs.parts for cause in parts))
    sizes = (np.size(each) for parts in runs.parts for each in parts.values())
    table = np.zeros((len(runs.parts), len(causes), max(sizes, default=1)))
    for number, parts in enumerate(runs.parts):
        for cause, each in parts.items():
            table[number, causes.index(cause)] = each
    return causes, table


def _last_until(ends: Floats, moments: Floats) -> Indices:
    """For each column, the index of the last of its sorted times up to each moment, or -1."""
    count, columns = ends.shape
    if columns == 1:
        found = np.searchsorted(ends[:, 0], moments[:, 0], side="right")[:, None]
        return found - 1
    behind = np.arange(columns) * (1.0 + max(float(ends.max()), float(moments.max())))
    found = np.searchsorted((ends + behind).T.ravel(), (moments + behind).T.ravel(), side="right")
    last: Indices = found.reshape(columns, -1).T - count * np.arange(columns) - 1
    return last


_LEAST = 1e-9  # share of the step time; causes with less are left out


def hidden(record: Record, role: int, account: Account) -> dict[Cause, float]:
    """Seconds by cause of communication for which a role does not wait, in a single step:
    seconds of transfers in flight (overlaps count once) and of communication inside passes, minus
    the seconds in the role's account."""
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
        for kind in sorted(set(track.transfers[track.transfers >= 0].tolist())):
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
