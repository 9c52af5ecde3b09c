"""A role at work: one SimPy process per stream plays its steps in order.

The host runs ahead of the device: it frees itself after its launches, whatever the device does,
unless a computation is marked `sync`. A computation with collectives inside is one wait for as long
as nothing else comes upon their links; while something does, its items are played one by one.
"""

from collections.abc import Generator
from typing import NamedTuple

import simpy
from simpy.events import Event

from sim.engine.costs import Parts
from sim.engine.folded import CommunicateStep, ComputeStep, RoleProgram, Step
from sim.engine.meetings import Meetings
from sim.engine.undisturbed import Progress
from sim.program.operations import COMPUTE_STREAM

Process = Generator[Event, object, None]


class Logged(NamedTuple):
    """A step that has been played: when it was ready, when it ended, its seconds by cause."""

    step: Step
    start: float
    end: float
    parts: Parts


_NO_PARTS: Parts = {}


class RoleProcess:
    """Plays one role's program; `logs` collects what each stream has played, in order."""

    def __init__(self, env: simpy.Environment, program: RoleProgram, meetings: Meetings) -> None:
        self.env, self.program, self.meetings = env, program, meetings
        self.logs: dict[str, list[Logged]] = {stream: [] for stream in program.streams}
        self.host_free = 0.0
        self._ended = bytearray(program.steps)
        self._waiting: dict[int, Event] = {}
        for name, steps in program.streams.items():
            env.process(self._play(name, steps))

    def _play(self, stream: str, steps: list[Step]) -> Process:
        env, ended, log = self.env, self._ended, self.logs[stream]
        for step in steps:
            for cause in step.after:
                if not ended[cause]:
                    yield self._end_of(cause)
            ready, parts = env.now, _NO_PARTS
            if isinstance(step, CommunicateStep):
                yield from self._communicate(step, of_host=stream == COMPUTE_STREAM)
            elif step.items:
                progress = Progress(step, ready, self.host_free)
                yield from self._watched(progress)
                self.host_free, parts = progress.host_free, progress.parts
                if step.sync:
                    self.host_free = env.now
            else:
                yield from self._compute(step)
                parts = step.cost.parts
            log.append(Logged(step, ready, env.now, parts))
            self._finish(step.index)

    def _compute(self, step: ComputeStep) -> Process:
        """Launch when the device is ready and the host has come this far; wait for the end."""
        if step.joins:
            yield from self._join(step.joins, of_host=True)
        duration, now = step.cost.duration, self.env.now
        end = duration.end(now, self.host_free)
        self.host_free = end if step.sync else duration.launched(now, self.host_free)
        if end > now:
            yield self.env.timeout(end - now)

    def _watched(self, progress: Progress) -> Process:
        """A computation whose links others may come upon: whole, or item by item meanwhile."""
        env, network = self.env, self.meetings.network
        while not progress.over:
            if network.idle(progress.step.links):
                end = env.timeout(max(progress.end() - env.now, 0.0))
                disturbed = network.watch(progress.step.links)
                yield end | disturbed
                network.unwatch(progress.step.links, disturbed)
                progress.advance(env.now, whole=end.processed)
            if not progress.over:
                yield from self._item(progress)

    def _item(self, progress: Progress) -> Process:
        """The item that is under way, its traffic in competition with others."""
        item, passed = progress.item, progress.passed(self.env.now)
        begin = progress.begin()
        if begin > self.env.now:
            yield self.env.timeout(begin - self.env.now)
        arrivals = [self.meetings.alone(traffic, passed) for traffic, _ in item.traffic]
        end = progress.kernels_end()
        if end > self.env.now:
            yield self.env.timeout(end - self.env.now)
        for arrival in arrivals:
            if not arrival.processed:
                yield arrival
        progress.played(self.env.now)

    def _communicate(self, step: CommunicateStep, of_host: bool) -> Process:
        """Join all transfers at once, unless a computation did; wait for every one of them."""
        if not step.joined:
            yield from self._join(step.transfers, of_host)
        for number in step.transfers:
            if not self.meetings.ended(number):
                yield self.meetings.done(number)
        if step.sync:
            self.host_free = max(self.host_free, self.env.now)

    def _join(self, transfers: tuple[int, ...], of_host: bool) -> Process:
        """Take part; on the compute stream the host must have come this far."""
        if of_host and self.host_free > self.env.now:
            yield self.env.timeout(self.host_free - self.env.now)
        for number in transfers:
            self.meetings.join(number)

    def _end_of(self, index: int) -> Event:
        return self._waiting.setdefault(index, Event(self.env))

    def _finish(self, index: int) -> None:
        self._ended[index] = 1
        waiting = self._waiting.pop(index, None)
        if waiting is not None:
            waiting.succeed()
