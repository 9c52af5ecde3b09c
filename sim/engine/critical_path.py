"""The critical path: the chain of work that makes up a step's time, with its seconds by cause.

The path begins at the last end and goes back to the event for which each moment waited: the
device's own work, the host's launches, or a transfer and the last role to join it. The seconds on
that chain add up to the step. Each kind's share of them is exactly d log(step) / d log(seconds of
that kind), as long as no other chain becomes longer (Baccelli et al. 1992, Synchronization and
Linearity, 2.3). Shares of an account differ: work that is hidden beside a busy stream has no line
in an account, although the step may wait for it alone.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from sim.config.dataclass import dataclass
from sim.engine.folded import ComputeStep, Step
from sim.engine.record import Record
from sim.engine.tracks import Track
from sim.program.causes import HOST, Cause
from sim.program.operations import COMPUTE_STREAM

Seconds = dict[tuple[int, str], float]  # by stage and cause


@dataclass(frozen=True, slots=True, eq=False)
class _Lane:
    """One stream of a role: its steps as planned and as played.

    `host` is the time when the host reached each step of the compute stream, 0 on other streams.
    """

    role: int
    stage: int
    steps: Sequence[Step]
    start: Sequence[float]
    end: Sequence[float]
    host: Sequence[float]
    track: Track


_At = tuple[_Lane, int]  # the step at this place of a lane


def critical_path(record: Record) -> Seconds:
    """Seconds on the critical path by stage and cause; they add up to the step time."""
    return _Path(record).seconds()


class _Path:
    """All played steps, which are walked from the end to the beginning."""

    def __init__(self, record: Record) -> None:
        self.record = record
        programs = {role.role.index: role for role in record.program().roles}
        self.lanes = {
            (track.role, track.stream): _lane(
                record, track, programs[track.role].streams[track.stream]
            )
            for track in record.tracks
        }
        self.seconds_of: Seconds = defaultdict(float)
        self._joined: dict[int, list[_At]] = defaultdict(list)
        for lane in self.lanes.values():
            for place, step in enumerate(lane.steps):
                for number in joins(step):
                    self._joined[number].append((lane, place))
        self._teams: dict[int, dict[int, _At]] = defaultdict(dict)
        for lane in self.lanes.values():
            for place, step in enumerate(lane.steps):
                if isinstance(step, ComputeStep) and step.team is not None:
                    self._teams[step.team][lane.role] = lane, place
        self._played: dict[int, dict[int, _At]] = {}

    def seconds(self) -> Seconds:
        ends = [lane for lane in self.lanes.values() if lane.steps]
        if not ends:
            return {}
        last = max(ends, key=lambda lane: lane.end[-1])
        at: _At | None = (last, len(last.steps) - 1)
        while at is not None:
            at = self._before_end(*at)
        return dict(self.seconds_of)

    def _put(self, lane: _Lane, cause: str, seconds: float) -> None:
        self.seconds_of[lane.stage, cause] += seconds

    def _before_end(self, lane: _Lane, place: int) -> _At | None:
        """Count the seconds of the event for which a step's end waited, and return the step before
        it on the path."""
        step = lane.steps[place]
        if isinstance(step, ComputeStep):
            return self._before_computation(lane, place, step)
        if step.team is not None:
            return self._before_team(lane, step.team)
        flights = self._flights(lane.track, place)
        arrived = [stop for *_, stop in flights]
        if not arrived or max(arrived) < lane.end[place]:
            return self._before_start(lane, place)
        last = arrived.index(max(arrived))
        cause, begin, end = flights[last]
        self._put(lane, cause, end - begin)
        return self._before_start(*max(self._joined[step.transfers[last]], key=_began))

    def _flights(self, track: Track, place: int) -> list[tuple[str, float, float]]:
        """Cause, beginning and end of each transfer of a step."""
        columns = track.transfers[place], track.begun[place], track.arrived[place]
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return [(self.record.kinds[kind][0], *times) for kind, *times in rows if kind >= 0]

    def _before_computation(self, lane: _Lane, place: int, step: ComputeStep) -> _At | None:
        """Count a computation's seconds. The path goes back along the device's own work or along
        the host's launches, whichever ended later."""
        parts = self.record.parts[lane.track.parts[place]]
        device = sum(parts.values())
        duration = step.cost.duration
        if _began((lane, place)) + device >= lane.host[place] + duration.lead:
            for cause, seconds in parts.items():
                self._put(lane, cause, seconds)
            return self._before_start(lane, place)
        busy = min(device, duration.lead)
        if duration.host > device:  # launches take longer than kernels: the last kernel is left
            busy = max(duration.lead - duration.host, 0.0)
        for cause, seconds in parts.items():
            self._put(lane, cause, seconds * busy / device if device else 0.0)
        self._put(lane, HOST, duration.lead - busy)
        return self._before_launch(lane, place)

    def _before_team(self, lane: _Lane, number: int) -> _At | None:
        """Count the seconds of a team's computation. The path goes back to the member's device or
        host that determines the end of this role. The seconds have the causes of the member that
        computes longest; the rest is the host's."""
        team, begun = self.record.program().teams[number], self._teams[number]
        members = [begun[role] for role in team.roles]
        before = [track.start[at] for track, at in members] + [
            track.host[at] for track, at in members
        ]
        seconds = team.table[team.roles.index(lane.role)]
        last = int((seconds + np.array(before)).argmax())
        parts = max((self.record.parts[lane.track.parts[at]] for lane, at in members), key=_sum)
        passed = float(seconds[last])
        share = min(passed / _sum(parts), 1.0)
        for cause, part in parts.items():
            self._put(lane, cause, share * part)
        self._put(lane, HOST, passed - share * _sum(parts))
        came, at = members[last % len(members)]
        return (
            self._before_start(came, at) if last < len(members) else self._before_launch(came, at)
        )

    def _before_start(self, lane: _Lane, place: int) -> _At | None:
        """The last dependency of a step's start: an earlier step, or the host."""
        if _began((lane, place)) > lane.start[place]:
            return self._before_launch(lane, place)
        before = (lane, place - 1) if place else None
        if not lane.steps[place].after:
            return before
        causes = [self._at(lane.role, index) for index in lane.steps[place].after]
        return max([*causes, *([before] if before else [])], key=_ended)

    def _at(self, role: int, index: int) -> _At:
        """The lane and the place at which a role's step of this index was played."""
        if role not in self._played:
            self._played[role] = {
                step.index: (lane, place)
                for lane in self.lanes.values()
                if lane.role == role
                for place, step in enumerate(lane.steps)
            }
        return self._played[role][index]

    def _before_launch(self, lane: _Lane, place: int) -> _At | None:
        """Count the host's launches back to the last event for which the host waited."""
        lane = self.lanes[lane.role, COMPUTE_STREAM]
        for before in range(place - 1, -1, -1):
            step = lane.steps[before]
            if step.sync and lane.host[before + 1] == lane.end[before]:
                return lane, before
            if isinstance(step, ComputeStep) and not step.sync:
                duration = step.cost.duration
                if _began((lane, before)) + duration.wait > lane.host[before] + duration.host:
                    return self._before_read(lane, before, duration.wait)
                self._put(lane, HOST, duration.host)
        return None

    def _before_read(self, lane: _Lane, place: int, seconds: float) -> _At | None:
        """Count the seconds for which the host waited for a step's work, in proportion to the
        causes of the whole step."""
        parts = self.record.parts[lane.track.parts[place]]
        device = sum(parts.values())
        for cause, share in (parts if device else {HOST: 1.0}).items():
            self._put(lane, cause, share * seconds / (device or 1.0))
        return self._before_start(lane, place)


def _sum(parts: Mapping[Cause, float]) -> float:
    return sum(parts.values())


def _lane(record: Record, track: Track, steps: Sequence[Step]) -> _Lane:
    end = track.end.tolist()
    start = track.start.tolist()
    hosts = _hosts(steps, start, end) if track.stream == COMPUTE_STREAM else [0.0] * len(steps)
    stage = record.roles[track.role].stage
    return _Lane(track.role, stage, steps, start, end, hosts, track)


def _hosts(steps: Sequence[Step], starts: Sequence[float], ends: Sequence[float]) -> list[float]:
    """When the host reached each step of the compute stream."""
    free, hosts = 0.0, []
    for step, start, end in zip(steps, starts, ends, strict=True):
        hosts.append(free)
        if step.sync:
            free = max(free, end)
        elif isinstance(step, ComputeStep):
            ready = max(start, free) if step.joins else start
            free = step.cost.duration.launched(ready, free)
    return hosts


def joins(step: Step) -> tuple[int, ...]:
    """The transfers that a step joins at its beginning."""
    if isinstance(step, ComputeStep):
        return step.joins
    return () if step.joined else step.transfers


def _began(at: _At) -> float:
    """When a step began its work, or joined its transfers once the host had reached it."""
    lane, place = at
    start = lane.start[place]
    return max(start, lane.host[place]) if joins(lane.steps[place]) else start


def _ended(at: _At) -> float:
    lane, place = at
    return lane.end[place]
