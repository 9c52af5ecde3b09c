"""A role at work: one SimPy process per stream plays its steps in order.

The host runs ahead of the device: it frees itself after its launches, whatever the device does,
unless a pass is marked `sync`.
"""

from collections.abc import Generator
from typing import TYPE_CHECKING

import simpy
from simpy.events import Event

from sim.engine.folded import Meet, Part, Pass, Step

if TYPE_CHECKING:
    from sim.engine.clock import Transfers

Process = Generator[Event, None, None]


class Worker:
    """Plays one part of a score; `log` collects (step, start, end, stream) as they end."""

    def __init__(self, env: simpy.Environment, part: Part, transfers: "Transfers") -> None:
        self.env, self.part, self.transfers = env, part, transfers
        self.log: list[tuple[Step, float, float, str]] = []
        self.host_free = 0.0
        self._ended = bytearray(part.steps)
        self._waiting: dict[int, Event] = {}
        for name, steps in part.streams.items():
            env.process(self._play(name, steps))

    def _play(self, stream: str, steps: list[Step]) -> Process:
        env, ended = self.env, self._ended
        for step in steps:
            for cause in step.after:
                if not ended[cause]:
                    yield self._end_of(cause)
            ready = env.now
            if isinstance(step, Meet):
                yield from self._meet(step, of_host=stream == "compute")
            elif step.joins:
                yield from self._compute_beside(step)
            elif (end := self._issue(step, ready)) > ready:
                yield env.timeout(end - ready)
            self.log.append((step, ready, env.now, stream))
            self._finish(step.index)

    def _issue(self, step: Pass, ready: float) -> float:
        """Launch a pass: when the device is ready and the host has launched; returns its end."""
        launch = self.host_free
        end = max(ready + step.device, launch + step.lead)
        self.host_free = end if step.sync else launch + step.host
        return end

    def _meet(self, step: Meet, of_host: bool) -> Process:
        """Join all transfers at once, unless a pass did; wait for every one of them."""
        if not step.joined:
            yield from self._join(step.transfers, of_host)
        for number in step.transfers:
            if not self.transfers.ended(number):
                yield self.transfers.done(number)
        if step.sync:
            self.host_free = max(self.host_free, self.env.now)

    def _compute_beside(self, step: Pass) -> Process:
        """Join transfers and compute while they run; a later step waits for them."""
        yield from self._join(step.joins, of_host=True)
        end = self._issue(step, self.env.now)
        if end > self.env.now:
            yield self.env.timeout(end - self.env.now)

    def _join(self, transfers: tuple[int, ...], of_host: bool) -> Process:
        """Take part; on the compute stream the host must have come this far."""
        if of_host and self.host_free > self.env.now:
            yield self.env.timeout(self.host_free - self.env.now)
        for number in transfers:
            self.transfers.join(number)

    def _end_of(self, index: int) -> Event:
        return self._waiting.setdefault(index, Event(self.env))

    def _finish(self, index: int) -> None:
        self._ended[index] = 1
        waiting = self._waiting.pop(index, None)
        if waiting is not None:
            waiting.succeed()
