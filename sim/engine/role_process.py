"""A role at work: one generator per stream plays its steps in order.

The host runs ahead of the device. It is free after its launches, whatever the device does, unless a
computation is marked `sync`.

A stream waits by leaving its callback `resume` with an event of the clock, a transfer, or a step of
another stream. Transfers and steps call `resume` directly at their end, so the clock only has
events at which time passes.

A computation with collectives inside is a single wait until its end. The end is known beforehand,
as long as no other traffic uses the collectives' links. When other traffic begins there, ended
items stay as they are, and the item under way is played on the network.
"""

from collections.abc import Callable, Generator
from typing import Any

from sim.engine.costs import Parts
from sim.engine.events import Clock, then
from sim.engine.folded import CommunicateStep, ComputeStep, Item, RoleProgram, Step
from sim.engine.meetings import Meetings
from sim.program.causes import HOST, Cause
from sim.program.operations import COMPUTE_STREAM


class Progress:
    """The progress of a computation through its items. `ready` and `host_free` are the times at
    which the device is ready and the host free after the last ended item."""

    def __init__(self, step: ComputeStep, ready: float, host_free: float) -> None:
        self.step, self.ready, self.host_free = step, ready, host_free
        self._began = ready
        self._place = 0
        self._lost: dict[Cause, float] = {}

    @property
    def over(self) -> bool:
        return self._place == len(self.step.items)

    @property
    def item(self) -> Item:
        """The item under way."""
        return self.step.items[self._place]

    @property
    def parts(self) -> Parts:
        """Seconds by cause, including the seconds that disturbances took. Waits for the host
        that disturbances hide no longer count."""
        if not self._lost:
            return self.step.cost.parts
        parts = dict(self.step.cost.parts)
        for cause, seconds in self._lost.items():
            parts[cause] = parts.get(cause, 0.0) + seconds
        hidden = sum(parts.values()) - (self.ready - self._began)
        if hidden > 0.0 and HOST in parts:
            parts[HOST] = max(parts[HOST] - hidden, 0.0)
        return parts

    def end(self) -> float:
        """When the computation ends if nothing disturbs it any more."""
        return self.item.rest.end(self.ready, self.host_free)

    def advance(self, now: float, *, whole: bool) -> None:
        """Finish the items that have ended by `now`, or all items if `whole`."""
        if whole:
            self.host_free = self.item.rest.launched(self.ready, self.host_free)
            self._place = len(self.step.items)
        for item in self.step.items[self._place :]:
            duration = item.cost.duration
            end = duration.end(self.ready, self.host_free)
            if end > now:
                break
            self.ready, self.host_free = end, duration.launched(self.ready, self.host_free)
            self._place += 1

    def begin(self) -> float:
        """When the item under way begins. If it has traffic, the host must have reached it."""
        return max(self.ready, self.host_free) if self.item.traffic else self.ready

    def passed(self, now: float) -> float:
        """The seconds for which the item under way has run."""
        return max(now - self.begin(), 0.0)

    def kernels_end(self) -> float:
        """When the kernels of the item under way end."""
        kernels = self.item.kernels
        if kernels is None:
            return self.begin()
        return kernels.duration.end(self.begin(), self.host_free)

    def played(self, now: float) -> None:
        """Note that the item under way has ended now."""
        item, duration = self.item, self.item.cost.duration
        lost = now - duration.end(self.ready, self.host_free)
        if lost > 0.0 and item.traffic:
            cause = item.traffic[-1][1]
            self._lost[cause] = self._lost.get(cause, 0.0) + lost
        self.ready, self.host_free = now, duration.launched(self.ready, self.host_free)
        self._place += 1


Resume = Callable[[Any], Any]
Playing = Generator[None, Any, None]

_NO_PARTS: Parts = {}


class Log:
    """The played steps of a stream: when each was ready and ended, and its seconds by cause."""

    def __init__(self, steps: list[Step]) -> None:
        self.steps = steps
        self.start: list[float] = []
        self.end: list[float] = []
        self.parts: list[Parts] = []

    @property
    def played(self) -> int:
        """The number of steps that have ended."""
        return len(self.end)


class RoleProcess:
    """Plays one role's program; `logs` has the played steps of each stream. It calls `ended` when
    all streams have ended."""

    def __init__(
        self,
        env: Clock,
        program: RoleProgram,
        meetings: Meetings,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        self.env, self.program, self.meetings = env, program, meetings
        self.logs = {stream: Log(steps) for stream, steps in program.streams.items()}
        self.host_free = 0.0
        self._ended = bytearray(program.steps)
        self._waiting: dict[int, list[Resume]] = {}
        self._left, self._at_the_end = len(self.logs), ended

    def begin(self) -> None:
        """Let all streams run until they wait for something."""
        for stream, log in self.logs.items():
            playing = self._play(stream == COMPUTE_STREAM, log)
            next(playing)
            playing.send(playing.send)

    def _play(self, of_host: bool, log: Log) -> Playing:
        env, ended = self.env, self._ended
        resume: Resume = yield
        for step in log.steps:
            for cause in step.after:
                if not ended[cause]:
                    self._waiting.setdefault(cause, []).append(resume)
                    yield
            log.start.append(env.now)
            if not isinstance(step, ComputeStep):
                yield from self._communicate(step, of_host, log, resume)
                log.parts.append(_NO_PARTS)
            elif step.team is None:
                log.parts.append((yield from self._compute(step, resume)))
            else:
                self._enter(step, step.team, log)
                continue
            log.end.append(env.now)
            ended[step.index] = 1
            for waiting in self._waiting.pop(step.index, ()):
                waiting(None)
        self._left -= 1
        if not self._left:
            self._at_the_end()
        yield  # never resumed: returning would raise StopIteration in the caller of `resume`

    def _compute(self, step: ComputeStep, resume: Resume) -> Generator[None, Any, Parts]:
        """Play a computation: launch its kernels and wait for its end."""
        if step.items:
            return (yield from self._watched(step, resume))
        if step.joins:
            yield from self._join(step.joins, True, resume)
        now, host, duration = self.env.now, self.host_free, step.cost.duration
        end = duration.end(now, host)
        self.host_free = end if step.sync else duration.launched(now, host)
        yield from self._until(end, resume)
        return step.cost.parts

    def _enter(self, step: ComputeStep, team: int, log: Log) -> None:
        """Begin a team's computation; log its end as if all roles were as far as this role."""
        now, host, duration = self.env.now, self.host_free, step.cost.duration
        self.meetings.begin(team, self.program.role.index, now, host)
        self.host_free = duration.launched(now, host)
        log.end.append(duration.end(now, host))
        log.parts.append(step.cost.parts)

    def _communicate(
        self, step: CommunicateStep, of_host: bool, log: Log, resume: Resume
    ) -> Playing:
        """Join all transfers at once, unless a computation has joined them; wait for their ends."""
        meetings = self.meetings
        if not step.joined:
            yield from self._join(step.transfers, of_host, resume)
        for number in step.transfers:
            if not meetings.ended(number):
                meetings.wait(number, resume)
                yield
        if step.team is not None:
            yield from self._leave(step.team, log, resume)
        if step.sync:
            self.host_free = max(self.host_free, self.env.now)

    def _leave(self, team: int, log: Log, resume: Resume) -> Playing:
        """Wait until this role ends its part of a computation that its whole team has begun."""
        log.start[-1] = log.end[-1]
        end, host = self.meetings.behind(team, self.program.role.index)
        self.host_free = max(self.host_free, host)
        yield from self._until(max(end, log.end[-1]), resume)
        self.meetings.leave(team)

    def _join(self, transfers: tuple[int, ...], of_host: bool, resume: Resume) -> Playing:
        """Join transfers; on the compute stream, wait first until the host is free."""
        if of_host:
            yield from self._until(self.host_free, resume)
        for number in transfers:
            self.meetings.join(number)

    def _until(self, moment: float, resume: Resume) -> Playing:
        if moment > self.env.now:
            self.env.alarm(moment, resume)
            yield

    def _watched(self, step: ComputeStep, resume: Resume) -> Generator[None, Any, Parts]:
        """Play a computation whose links other traffic may use: as a whole while the links are
        idle, item by item while they are not."""
        env, network, links = self.env, self.meetings.network, step.links
        progress = Progress(step, env.now, self.host_free)
        while not progress.over:
            if network.idle(links):
                end = env.alarm(max(progress.end(), env.now), resume)
                network.watch(links, resume)
                ended = yield
                network.unwatch(links, resume)
                if ended is not end:
                    end.callbacks.remove(resume)
                progress.advance(env.now, whole=ended is end)
            if not progress.over:
                yield from self._item(progress, resume)
        self.host_free = env.now if step.sync else progress.host_free
        return progress.parts

    def _item(self, progress: Progress, resume: Resume) -> Playing:
        """Play the item under way; its traffic competes with other traffic on the network."""
        item, passed = progress.item, progress.passed(self.env.now)
        yield from self._until(progress.begin(), resume)
        arrivals = [self.meetings.alone(traffic, passed) for traffic, _ in item.traffic]
        yield from self._until(progress.kernels_end(), resume)
        for arrival in arrivals:
            if not arrival.processed:
                then(arrival, resume)
                yield
        progress.played(self.env.now)
