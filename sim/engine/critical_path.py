"""The critical path: the chain of work that a step's time consists of, and how much of each kind.

From the last end, go back to whatever that moment waited for: the device's own work, the host's
launches, a transfer and the last one to join it. The seconds on that chain add up to the step, and
each kind's share of them is d log(step) / d log(seconds of that kind) exactly, as long as no other
chain overtakes it (Baccelli et al. 1992, Synchronization and Linearity, 2.3). Shares of an account
are something else: what runs hidden beside a busy stream has no line there, although the step may
wait for nothing else.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from sim.engine.accounts import HOST
from sim.engine.folded import Part, Pass, Score, Step
from sim.engine.timeline import Span, Timeline

COMPUTE = "compute"

Seconds = dict[tuple[int, str], float]  # by stage and cause


@dataclass(frozen=True, slots=True, eq=False)
class _Lane:
    """One stream of a role: its steps as planned and as played.

    `host` is when the host came to each step of the compute stream, 0 on other streams.
    """

    role: int
    stage: int
    steps: Sequence[Step]
    spans: Sequence[Span]
    host: Sequence[float]


_At = tuple[_Lane, int]  # the step at this place of a lane


def critical_path(score: Score, timeline: Timeline) -> Seconds:
    """Seconds on the critical path by stage and cause; they add up to the step time."""
    return _Path(score, timeline).seconds()


class _Path:
    """Everything that was played, to be walked from the end to the beginning."""

    def __init__(self, score: Score, timeline: Timeline) -> None:
        spans: dict[tuple[int, str], list[Span]] = defaultdict(list)
        for span in timeline.spans:
            spans[span.role, span.stream].append(span)
        self.lanes = {
            (part.role.index, stream): _lane(part, stream, spans[part.role.index, stream])
            for part in score.parts
            for stream in part.streams
        }
        self.found: Seconds = defaultdict(float)
        self._joined: dict[int, list[_At]] = defaultdict(list)
        for lane in self.lanes.values():
            for place, step in enumerate(lane.steps):
                for number in _joins(step):
                    self._joined[number].append((lane, place))
        self._played: dict[int, dict[int, _At]] = {}

    def seconds(self) -> Seconds:
        ends = [lane for lane in self.lanes.values() if lane.spans]
        if not ends:
            return {}
        last = max(ends, key=lambda lane: lane.spans[-1].end)
        at: _At | None = (last, len(last.spans) - 1)
        while at is not None:
            at = self._before_end(*at)
        return dict(self.found)

    def _put(self, lane: _Lane, cause: str, seconds: float) -> None:
        self.found[lane.stage, cause] += seconds

    def _before_end(self, lane: _Lane, place: int) -> _At | None:
        """Account for what a step's end waited for last, and go there."""
        step = lane.steps[place]
        if isinstance(step, Pass):
            return self._before_pass(lane, place, step)
        flights = lane.spans[place].args["transfers"]
        arrived = [stop for *_, stop in flights]
        if not arrived or max(arrived) < lane.spans[place].end:
            return self._before_start(lane, place)
        last = arrived.index(max(arrived))
        cause, _, begin, end = flights[last]
        self._put(lane, cause, end - begin)
        return self._before_start(*max(self._joined[step.transfers[last]], key=_began))

    def _before_pass(self, lane: _Lane, place: int, step: Pass) -> _At | None:
        if _began((lane, place)) + step.device >= lane.host[place] + step.lead:
            for cause, seconds in step.parts:
                self._put(lane, cause, seconds)
            return self._before_start(lane, place)
        device = min(step.device, step.lead)
        if step.host > step.device:  # launches take longer than kernels: the last kernel is left
            device = max(step.lead - step.host, 0.0)
        for cause, seconds in step.parts:
            self._put(lane, cause, seconds * device / step.device if step.device else 0.0)
        self._put(lane, HOST, step.lead - device)
        return self._before_launch(lane, place)

    def _before_start(self, lane: _Lane, place: int) -> _At | None:
        """What a step's start waited for last: an earlier step, or the host."""
        if _began((lane, place)) > lane.spans[place].start:
            return self._before_launch(lane, place)
        before = (lane, place - 1) if place else None
        if not lane.steps[place].after:
            return before
        causes = [self._at(lane.role, index) for index in lane.steps[place].after]
        return max([*causes, *([before] if before else [])], key=_ended)

    def _at(self, role: int, index: int) -> _At:
        """Where a role's step of this index was played."""
        if role not in self._played:
            self._played[role] = {
                step.index: (lane, place)
                for lane in self.lanes.values()
                if lane.role == role
                for place, step in enumerate(lane.steps)
            }
        return self._played[role][index]

    def _before_launch(self, lane: _Lane, place: int) -> _At | None:
        """Account for the host's launches back to the last thing that it waited for."""
        lane = self.lanes[lane.role, COMPUTE]
        for before in range(place - 1, -1, -1):
            step = lane.steps[before]
            if step.sync and lane.host[before + 1] == lane.spans[before].end:
                return lane, before
            if isinstance(step, Pass) and not step.sync:
                self._put(lane, HOST, step.host)
        return None


def _lane(part: Part, stream: str, spans: Sequence[Span]) -> _Lane:
    steps, role = part.streams[stream], part.role
    hosts = _hosts(steps, spans) if stream == COMPUTE else [0.0] * len(steps)
    return _Lane(role.index, role.stage, steps, spans, hosts)


def _hosts(steps: Sequence[Step], spans: Sequence[Span]) -> list[float]:
    """When the host came to each step of the compute stream."""
    free, found = 0.0, []
    for step, span in zip(steps, spans, strict=True):
        found.append(free)
        if step.sync:
            free = max(free, span.end)
        elif isinstance(step, Pass):
            free += step.host
    return found


def _joins(step: Step) -> tuple[int, ...]:
    """The transfers that a step takes part in from its beginning."""
    if isinstance(step, Pass):
        return step.joins
    return () if step.joined else step.transfers


def _began(at: _At) -> float:
    """When a step began its work or joined its transfers, which needs the host to be there."""
    lane, place = at
    start = lane.spans[place].start
    return max(start, lane.host[place]) if _joins(lane.steps[place]) else start


def _ended(at: _At) -> float:
    lane, place = at
    return lane.spans[place].end
