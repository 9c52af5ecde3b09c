"""The critical path: the chain of work that a step's time consists of, and how much of each kind.

From the last end, go back to whatever that moment waited for: the device's own work, the host's
launches, a transfer and the last one to join it. The seconds on that chain add up to the step, and
each kind's share of them is d log(step) / d log(seconds of that kind) exactly, as long as no other
chain overtakes it (Baccelli et al. 1992, Synchronization and Linearity, 2.3). Shares of an account
are something else: what runs hidden beside a busy stream has no line there, although the step may
wait for nothing else.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sim.engine.account import HOST
from sim.engine.score import Meet, Part, Pass, Score, Step
from sim.engine.trace import Span, Timeline

COMPUTE = "compute"

Seconds = dict[tuple[int, str], float]  # by stage and cause


class _At(NamedTuple):
    """A step that was played: role, its stream and its place there."""

    role: int
    stream: str
    place: int


def critical_path(score: Score, timeline: Timeline) -> Seconds:
    """Seconds on the critical path by stage and cause; they add up to the step time."""
    return _Path(score, timeline).seconds()


class _Path:
    """Everything that was played, to be walked from the end to the beginning."""

    def __init__(self, score: Score, timeline: Timeline) -> None:
        self.steps = {part.role.index: part.streams for part in score.parts}
        self.stage = {part.role.index: part.role.stage for part in score.parts}
        self.spans: dict[tuple[int, str], list[Span]] = defaultdict(list)
        for span in timeline.spans:
            self.spans[span.role, span.stream].append(span)
        self.played = {part.role.index: dict(_played(part)) for part in score.parts}
        self.host = {part.role.index: self._hosts(part) for part in score.parts}
        self.joined = _joined(score)
        self.found: Seconds = defaultdict(float)

    def seconds(self) -> Seconds:
        ends = [(spans[-1].end, key) for key, spans in self.spans.items() if spans]
        if not ends:
            return {}
        _, (role, stream) = max(ends)
        at: _At | None = _At(role, stream, len(self.spans[role, stream]) - 1)
        while at is not None:
            at = self._before_end(at)
        return dict(self.found)

    def _hosts(self, part: Part) -> list[float]:
        """When the host came to each step of the compute stream."""
        free, found = 0.0, []
        spans = self.spans[part.role.index, COMPUTE]
        for step, span in zip(part.streams.get(COMPUTE, ()), spans, strict=True):
            found.append(free)
            if step.sync:
                free = max(free, span.end)
            elif isinstance(step, Pass):
                free += step.host
        return found

    def _put(self, role: int, cause: str, seconds: float) -> None:
        self.found[self.stage[role], cause] += seconds

    def _at(self, at: _At) -> tuple[Step, Span]:
        return self.steps[at.role][at.stream][at.place], self.spans[at.role, at.stream][at.place]

    def _before_end(self, at: _At) -> "_At | None":
        """Account for what a step's end waited for last, and go there."""
        step, span = self._at(at)
        if isinstance(step, Pass):
            return self._before_pass(at, step, span)
        flights = zip(step.transfers, span.args["transfers"], strict=True)
        last = max(flights, key=lambda flight: flight[1][3], default=None)
        if last is None or last[1][3] < span.end:
            return self._before_start(at)
        number, (cause, _, begin, end) = last
        self._put(at.role, cause, end - begin)
        return self._before_start(max(self.joined[number], key=self._joins))

    def _before_pass(self, at: _At, step: Pass, span: Span) -> "_At | None":
        if self._joins(at) + step.device >= self.host[at.role][at.place] + step.lead:
            for cause, seconds in step.parts:
                self._put(at.role, cause, seconds)
            return self._before_start(at)
        device = min(step.device, step.lead)
        if step.host > step.device:  # launches take longer than kernels: the last kernel is left
            device = max(step.lead - step.host, 0.0)
        for cause, seconds in step.parts:
            self._put(at.role, cause, seconds * device / step.device if step.device else 0.0)
        self._put(at.role, HOST, step.lead - device)
        return self._before_launch(at)

    def _joins(self, at: _At) -> float:
        """When a step begins its work or joins its transfers."""
        step, span = self._at(at)
        waits = at.stream == COMPUTE and (isinstance(step, Meet) or step.joins)
        return max(span.start, self.host[at.role][at.place]) if waits else span.start

    def _before_start(self, at: _At) -> "_At | None":
        """What a step's start waited for last: an earlier step, or the host."""
        step, span = self._at(at)
        if self._joins(at) > span.start:
            return self._before_launch(at)
        causes = [self.played[at.role][index] for index in step.after]
        if at.place:
            causes.append(at._replace(place=at.place - 1))
        return max(causes, key=lambda cause: self._at(cause)[1].end, default=None)

    def _before_launch(self, at: _At) -> "_At | None":
        """Account for the host's launches back to the last thing that it waited for."""
        stream = self.steps[at.role][COMPUTE]
        for place in range(at.place - 1, -1, -1):
            step = stream[place]
            end = self.spans[at.role, COMPUTE][place].end
            if step.sync and self.host[at.role][place + 1] == end:
                return at._replace(place=place)
            if isinstance(step, Pass) and not step.sync:
                self._put(at.role, HOST, step.host)
        return None


def _played(part: Part) -> Iterator[tuple[int, _At]]:
    for stream, steps in part.streams.items():
        for place, step in enumerate(steps):
            yield step.index, _At(part.role.index, stream, place)


def _joined(score: Score) -> dict[int, list[_At]]:
    """Per transfer the steps that take part in it."""
    found: dict[int, list[_At]] = defaultdict(list)
    for part in score.parts:
        for stream, steps in part.streams.items():
            for place, step in enumerate(steps):
                for number in _joins(step):
                    found[number].append(_At(part.role.index, stream, place))
    return found


def _joins(step: Step) -> Iterable[int]:
    if isinstance(step, Pass):
        return step.joins
    return () if step.joined else step.transfers
