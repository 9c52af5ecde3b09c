"""A worker: where it is, what it computes, what it holds, and where its time goes."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.collectives.compression import Compression
from sim.engine.processes import Event, Place, Process, World
from sim.sharing.learning.optimizers import Optimizer
from sim.sharing.learning.task import Task
from sim.sharing.plan import Fault
from sim.sharing.workload import Piece, Workload

Vector = NDArray[np.float64]
Pace = Callable[[int, int, int], float]
"""(rank, copy, step) -> how many times as long as on a healthy device that step takes."""


class Gone(Exception):  # noqa: N818  it says what has happened, and is no error
    """A worker has failed and will not come back."""


class Worker:
    """What a process of `sim.sharing` calls `me`.

    Its methods are parts of processes: `yield from` them. Seconds are booked under `compute`,
    `optimizer`, `communication`, `server`, `waiting` and `down`; what is left at the end is idle.
    """

    def __init__(
        self,
        rank: int,
        place: Place,
        world: World,
        work: Workload,
        task: Task,
        *,
        pace: Pace,
        usual: float = 1.0,
        copies: int = 1,
        faults: Sequence[Fault] = (),
        compression: Compression,
        memory_bandwidth: float,
        rule: Optimizer,
        seed: int = 0,
    ) -> None:
        self.rank, self.place, self.world = rank, place, world
        self.work, self.task, self.copies = work, task, copies
        self.pace, self.usual = pace, usual
        self.faults = sorted(faults, key=lambda fault: fault.at)
        self._absences = tuple(self.faults)
        self.compression, self.seed = compression, seed
        self.memory = work.memory or memory_bandwidth
        self.rule = rule
        self.weights: Vector = task.start.copy()
        self.state = rule.start(self.weights.size)
        self.error: Vector = np.zeros_like(self.weights)
        self.push_weight = 1.0
        self.version = 0
        self.steps = 0
        self.seconds: dict[str, float] = defaultdict(float)
        self.doing: tuple[str, float] | None = None
        self.ended = 0.0
        self.gone = False

    # What a worker does.

    def compute(self, step: int) -> Process:
        """Forward and backward of a step, the gradients of the worker's GPUs added up; returns the
        gradient at the weights held at its start."""
        gradient = yield from self.passes(step)
        yield from self._inside("all_reduce", self.work.bytes)
        return gradient

    def passes(self, step: int) -> Process:
        """The same, where those who add up all gradients add up those of its GPUs too."""
        gradient = self.task.gradient(self.weights, self.rank, step)
        yield from self._execute(step, self.work.forward, self.work.backward)
        self.steps += 1
        return gradient

    def forward(self, step: int, piece: Piece) -> Process:
        """Forward through some layers."""
        yield from self._execute(step, piece.forward, 0.0)

    def backward(self, step: int, piece: Piece) -> Process:
        """Backward through some layers."""
        yield from self._execute(step, 0.0, piece.backward)

    def apply(self, gradient: Vector) -> Process:
        """One step of the worker's own optimizer."""
        yield from self.optimizer_pass()
        self.weights, self.state = self.rule.step(self.weights, gradient, self.state)

    def optimizer_pass(self, share: float = 1.0) -> Process:
        """The time of the optimizer's step on a share of the weights, without its arithmetic."""
        yield from self._busy(share * self.work.optimizer, "optimizer", "optimizer")

    def encode(self, vector: Vector, step: int) -> Process:
        """Compress what is to be sent; returns what its receiver will read."""
        yield from self.encode_part(1.0)
        return self.compressed(vector, step)

    def encode_part(self, share: float) -> Process:
        """The time of compressing a share of an update, without its arithmetic."""
        moved = self.compression.encode_bytes(share * self.work.parameters)
        yield from self._busy(moved / self.memory, "encode", "compression")

    def decode(self, messages: int = 1) -> Process:
        """The time of reading so many compressed updates."""
        moved = self.compression.decode_bytes(self.work.parameters, messages)
        yield from self._busy(moved / self.memory, "decode", "compression")

    def compressed(self, vector: Vector, step: int) -> Vector:
        """What a receiver reads of a vector; what is lost waits for the next one."""
        sent, self.error = self.compression.encode(vector, self.error, (self.seed, step))
        return sent

    def wait(self, event: Event, cause: str = "waiting", name: str = "") -> Process:
        """Wait for something; returns what it brings."""
        start = self.world.now
        value = yield from self._during(cause, event)
        if name:
            self.note(name, name, start)
        return value

    def meet(self, event: Event, name: str = "") -> Process:
        """Wait for the others of a meeting, then for what it does; returns its answer.

        Until all are there is `waiting`, from then on `communication`.
        """
        start = self.world.now
        self.doing = ("waiting", start)
        answer, together = yield event
        self.doing, together = None, max(together, start)
        self.seconds["waiting"] += together - start
        self.seconds["communication"] += self.world.now - together
        if name:
            self.note(name, "data communication", together)
        return answer

    def note(self, name: str, cause: str, start: float) -> None:
        """Draw a communication of this worker from `start` until now."""
        if self.world.now > start:
            self.world.span(self.rank, "network", name, cause, start, kind=name)

    @property
    def away(self) -> bool:
        """Whether the worker is down just now, or for good."""
        now = self.world.now
        spans = ((fault.at, fault.after) for fault in self._absences if fault.after is not None)
        return self.gone or any(at <= now < at + after for at, after in spans)

    @property
    def message(self) -> float:
        """Bytes of an update on the wire."""
        return self.compression.bytes(self.work.parameters, self.work.width)

    # How long it takes.

    def _execute(self, step: int, forward: float, backward: float) -> Process:
        world, whole = self.world, forward + backward
        seconds = yield from self._survive(whole * self.factor(step))
        if seconds > 0.0:
            yield from self._during("compute", world.sleep(seconds))
        turn = world.now - seconds * (backward / whole if whole else 0.0)
        for phase, start, end in (("F", world.now - seconds, turn), ("B", turn, world.now)):
            if end > start:
                world.span(
                    self.rank, "compute", phase, "compute", start, end, phase=phase, microbatch=step
                )

    def factor(self, step: int) -> float:
        """How slow the step is; of several copies the first answer counts."""
        return min(self.pace(self.rank, copy, step) for copy in range(self.copies))

    def _survive(self, seconds: float) -> Process:
        """Seconds that the passes take from now; a failure on the way costs what was done."""
        while True:
            now = self.world.now
            fault = next((one for one in self.faults if one.at < now + seconds), None)
            if fault is None:
                return seconds
            self.faults.remove(fault)
            back = max(fault.at, now) + (fault.after or 0.0)
            yield from self._during("down", self.world.sleep(back - now))
            self.world.span(self.rank, "compute", "down", "down", now, phase="down")
            if fault.after is None:
                raise Gone

    def _inside(self, kind: str, size: float) -> Process:
        """A collective of the GPUs of one node, before anything leaves it."""
        if len(self.place.gpus) > 1:
            start = self.world.now
            reducing = self.world.collective(kind, size, [self.place])
            yield from self._during("communication", reducing)
            self.note("inside the node", "tensor communication", start)

    def _busy(self, seconds: float, name: str, cause: str) -> Process:
        if seconds > 0.0:
            start = self.world.now
            yield from self._during(cause, self.world.sleep(seconds))
            self.world.span(self.rank, "compute", name, cause, start, phase=name)

    def _during(self, cause: str, event: Event) -> Process:
        """Book the time until an event; `doing` is the cause and when it began."""
        start = self.world.now
        self.doing = (cause, start)
        value = yield event
        self.doing = None
        self.seconds[cause] += self.world.now - start
        return value


def mean(values: dict[int, Vector], weights: dict[int, float] | None = None) -> Vector:
    """The mean of what ranks hold, added up in rank order, whatever order they came in."""
    total: Any = None
    for rank in sorted(values):
        part = values[rank] if weights is None else weights[rank] * values[rank]
        total = part if total is None else total + part
    count = len(values) if weights is None else sum(weights[rank] for rank in sorted(values))
    return np.asarray(total / count)
