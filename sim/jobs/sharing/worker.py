"""A worker: its GPUs, its computation, its weights, and the account of its time."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import wraps
from inspect import GEN_CREATED, getgeneratorstate
from typing import Any, TypeVar, cast

import numpy as np

from sim.collectives.compression import Compression
from sim.config.errors import InputError
from sim.engine.live_cluster import Endpoint, Event, LiveCluster, Process
from sim.jobs.sharing.barrier import Exchange
from sim.jobs.sharing.learning.optimizers import Optimizer, Steps
from sim.jobs.sharing.learning.task import LearningTask, Vector, shapes
from sim.jobs.sharing.workload import TimedLayer, Workload
from sim.program.causes import (
    COMMUNICATION,
    COMPRESSION,
    COMPUTE,
    DATA,
    DOWN,
    INSIDE,
    OPTIMIZER,
    WAITING,
    Cause,
)
from sim.program.operations import COMPUTE_STREAM

EVERYTHING = slice(None)  # all elements of the weights


class WorkerLost(Exception):  # noqa: N818  a simulated event, not an error
    """A worker has failed and will not come back."""


Activity = TypeVar("Activity", bound=Callable[..., Process])


def activity(method: Activity) -> Activity:
    """Mark a function as a part of a worker's process. The worker is its first argument, or the
    second after another `self`. A part that is called without `yield from` never begins; then the
    next call of a part raises `InputError`."""

    @wraps(method)
    def called(*args: Any, **kwargs: Any) -> Process:
        worker = args[0] if isinstance(args[0], Worker) else args[1]
        before: Any = worker.part
        if before is not None and getgeneratorstate(before) == GEN_CREATED:
            fault = f"{before.__qualname__} was called, but it has not run"
            raise InputError("sharing", fault, "write `yield from` before the call")
        worker.part = method(*args, **kwargs)
        return worker.part

    return cast(Activity, called)


class Worker:
    """A worker's state, and methods that are parts of its process, used by `yield from`.

    Every second is booked under a cause: `compute`, `optimizer`, `compression`, any communication,
    `server`, `waiting` or `down`. Only clients of federated rounds are idle between rounds.
    `slowdown` says how many times as long as usual a step takes; its mean is `mean_slowdown`.
    `absences` are failures from which the worker comes back: when each begins and how long it lasts
    (s).
    """

    def __init__(
        self,
        rank: int,
        endpoint: Endpoint,
        cluster: LiveCluster,
        workload: Workload,
        task: LearningTask,
        *,
        slowdown: Callable[[int], float],
        mean_slowdown: float = 1.0,
        absences: Sequence[tuple[float, float]] = (),
        compression: Compression,
        memory_bandwidth: float,
        optimizer: Optimizer,
        seed: int = 0,
    ) -> None:
        self.rank, self.endpoint, self.cluster = rank, endpoint, cluster
        self.workload, self.task, self._shapes = workload, task, shapes(task)
        self.slowdown, self.mean_slowdown = slowdown, mean_slowdown
        self._absences = tuple(absences)
        self._to_come = sorted(absences)
        self.restore: Callable[[Worker], Process] | None = None  # runs when the worker is back
        self.compression, self.seed = compression, seed
        self.memory_bandwidth = workload.memory or memory_bandwidth
        self.weights: Vector = task.start.copy()
        self.fetched = self.weights  # the weights last fetched from servers or a peer
        self.optimizer = Steps(optimizer, self.weights.size)
        self.error: Vector = np.zeros_like(self.weights)
        self.push_weight = 1.0
        gpus = len(endpoint.gpus) if workload.in_pieces else 1
        self.elements = workload.parameters / gpus  # the number that each of its GPUs encodes
        self.message = self.message_of(workload.whole)  # bytes of an update on the wire
        self.version = 0
        self.steps = 0
        self.seconds: dict[str, float] = defaultdict(float)
        self._activity: tuple[Cause, float, Event] | None = None  # cause, begin (s), end
        self.part: Process | None = None  # the part of its process that was called last
        self.ended = 0.0
        self.lost = False

    # Activities of a worker.

    @activity
    def compute(self, step: int) -> Process:
        """Run forward and backward of a step and add up the gradients of the worker's GPUs; return
        the gradient at the weights that the worker had at the start."""
        gradient = yield from self.passes(step)
        yield from self._collective_inside("all_reduce", self.workload.bytes)
        return gradient

    @activity
    def passes(self, step: int) -> Process:
        """Run forward and backward without adding up the GPUs' gradients, for methods that reduce
        the gradients of all GPUs of all workers at once."""
        forward, backward = self.workload.forward, self.workload.backward
        seconds = yield from self._survive((forward + backward) * self.slowdown(step))
        gradient = self.task.gradient(self.weights, self.rank, step)
        yield from self._execute(step, seconds, backward / ((forward + backward) or 1.0))
        self.steps += 1
        return gradient

    @activity
    def forward(self, step: int, layer: TimedLayer) -> Process:
        """Run the forward pass of some layers."""
        seconds = yield from self._survive(layer.forward * self.slowdown(step))
        yield from self._execute(step, seconds, 0.0)

    @activity
    def backward(self, step: int, layer: TimedLayer) -> Process:
        """Run the backward pass of some layers."""
        seconds = yield from self._survive(layer.backward * self.slowdown(step))
        yield from self._execute(step, seconds, 1.0)

    @activity
    def apply(self, gradient: Vector) -> Process:
        """Step the worker's weights with its own optimizer."""
        yield from self.optimizer_pass()
        self.weights = self.optimizer.step(self.weights, gradient)

    @activity
    def optimizer_pass(self, share: float = 1.0) -> Process:
        """Spend the time of the optimizer's step on a share of the weights, without arithmetic."""
        yield from self._busy(share * self.workload.optimizer, "optimizer", OPTIMIZER)

    @activity
    def local_steps(self, round_number: int, period: int) -> Process:
        """Make a round of `period` steps on the worker's own weights."""
        for step in range(round_number * period, (round_number + 1) * period):
            yield from self.local_step(step)

    @activity
    def local_step(self, step: int) -> Process:
        """Make a step on the worker's own weights."""
        gradient = yield from self.compute(step)
        yield from self.apply(gradient)

    @activity
    def encode(self, vector: Vector, step: int) -> Process:
        """Compress a message; returns the values that its receiver will read."""
        yield from self.encode_part(1.0)
        return self.compressed(vector, step)

    @activity
    def encode_part(self, share: float) -> Process:
        """Spend the time of compressing a share of an update, without arithmetic: the time to move
        its bytes or the time to launch its kernels, whichever is longer."""
        moved = self.compression.encode_bytes(share * self.elements)
        launched = self.compression.kernels * self.workload.launch
        yield from self._busy(max(moved / self.memory_bandwidth, launched), "encode", COMPRESSION)

    @activity
    def decode(self, messages: int = 1, share: float = 1.0) -> Process:
        """Spend the time of decoding `messages` compressed updates, or a `share` of each."""
        moved = self.compression.decode_bytes(share * self.elements, messages)
        yield from self._busy(moved / self.memory_bandwidth, "decode", COMPRESSION)

    def compressed(self, vector: Vector, step: int, elements: slice = EVERYTHING) -> Vector:
        """Elements of a vector as the receiver reads them; the compression error is added to the
        next message of these elements."""
        seed, error = (self.seed, step), self.error[elements]
        of = self._shapes if elements == EVERYTHING else ()
        sent, self.error[elements] = self.compression.encode(vector, error, seed, of)
        return sent

    @activity
    def wait(self, event: Event, cause: Cause = WAITING, name: str = "") -> Process:
        """Wait for an event; return its value. With a name the wait is recorded as a span."""
        start = self.cluster.now
        value = yield from self._book(cause, event)
        if name:
            self.note(name, cause, start)
        return value

    @activity
    def exchange(self, exchange: Exchange, name: str = "", cause: Cause = DATA) -> Process:
        """Wait for the other workers and for the bytes; return the result of the exchange."""
        start = self.cluster.now
        value = yield from self._book(COMMUNICATION, exchange)
        if name:
            self.note(name, cause, max(start, exchange.complete))
        return value

    def note(self, name: str, cause: Cause, start: float) -> None:
        """Record a communication of this worker from `start` until now."""
        if self.cluster.now > start:
            self.cluster.span(self.rank, "network", name, cause, start, kind=name)

    @property
    def is_away(self) -> bool:
        """Whether the worker is down now, or has failed for good."""
        now = self.cluster.now
        return self.lost or any(at <= now < at + after for at, after in self._absences)

    def unknown_for(self, detection: float) -> float:
        """Seconds until others know that this worker is away, `detection` after it failed."""
        now = self.cluster.now
        since = [at for at, after in self._absences if at <= now < at + after]
        since += [self.ended] if self.lost else []
        return max((at + detection - now for at in since), default=0.0)

    def message_of(self, part: TimedLayer) -> float:
        """Bytes of an update of a part of the model on the wire."""
        return self.compression.message(part.parameters, self.workload.width, part.shapes)

    def take(self, weights: Vector, version: int) -> None:
        """Go on with weights that have been fetched."""
        self.weights = self.fetched = weights
        self.version = version

    # The account of its time.

    def _execute(self, step: int, seconds: float, backward: float) -> Process:
        """Run passes of `seconds`; the share `backward` of them is the backward pass."""
        cluster = self.cluster
        if seconds > 0.0:
            yield from self._book(COMPUTE, cluster.sleep(seconds))
        turn = cluster.now - seconds * backward
        passes = (("F", cluster.now - seconds, turn), ("B", turn, cluster.now))
        for phase, start, end in passes:
            if end > start:
                cluster.span(
                    self.rank,
                    COMPUTE_STREAM,
                    phase,
                    COMPUTE,
                    start,
                    end,
                    phase=phase,
                    microbatch=step,
                )

    def _survive(self, seconds: float) -> Process:
        """Wait until the worker can run passes of `seconds` without a failure; return `seconds`.
        Work done before a failure is lost; its time counts as down."""
        while True:
            now = self.cluster.now
            if not self._to_come or self._to_come[0][0] >= now + seconds:
                return seconds
            at, after = self._to_come.pop(0)
            back = max(at, now) + after
            yield from self._book(DOWN, self.cluster.sleep(back - now))
            if self.restore is not None:
                yield from self._book(DOWN, self.cluster.start(self.restore(self)))
            self.cluster.span(self.rank, COMPUTE_STREAM, "down", DOWN, now, phase="down")

    def _collective_inside(self, kind: str, size: float) -> Process:
        """A collective among the worker's own GPUs, before an update leaves the node."""
        if len(self.endpoint.gpus) > 1 and not self.workload.in_pieces:
            start = self.cluster.now
            reducing = self.cluster.collective(kind, size, [self.endpoint])
            yield from self._book(COMMUNICATION, reducing)
            self.note("inside the node", INSIDE, start)

    def _busy(self, seconds: float, name: str, cause: Cause) -> Process:
        if seconds > 0.0:
            start = self.cluster.now
            yield from self._book(cause, self.cluster.sleep(seconds))
            self.cluster.span(self.rank, COMPUTE_STREAM, name, cause, start, phase=name)

    def _book(self, cause: Cause, event: Event) -> Process:
        """Book the time until an event; a worker that has failed by then raises `WorkerLost`."""
        booked = COMMUNICATION if cause.kind == "communication" else cause
        self._activity = (booked, self.cluster.now, event)
        value: Any = yield event
        if self.lost:
            raise WorkerLost
        self._settle(self.seconds, self.cluster.now)
        self._activity = None
        return value

    def fail(self) -> None:
        """Fail for good."""
        self._settle(self.seconds, self.cluster.now)
        self._activity, self.lost, self.ended = None, True, self.cluster.now

    def seconds_until(self, end: float) -> dict[str, float]:
        """Seconds by cause up to a moment, including the activity that is under way."""
        seconds = defaultdict(float, self.seconds)
        self._settle(seconds, end)
        if self.lost:
            seconds[DOWN] += end - self.ended
        return seconds

    def _settle(self, seconds: dict[str, float], end: float) -> None:
        """Add the seconds of the present activity, up to a moment."""
        if self._activity:
            cause, start, event = self._activity
            waiting = event.waiting(start, end) if isinstance(event, Exchange) else 0.0
            if waiting:
                seconds[WAITING] += waiting
            seconds[cause] += end - start - waiting


def mean(values: dict[int, Vector], weights: dict[int, float] | None = None) -> Vector:
    """The (weighted) mean over ranks, added up in rank order, whatever the order of arrival."""
    total: Any = None
    for rank in sorted(values):
        part = values[rank] if weights is None else weights[rank] * values[rank]
        total = part if total is None else total + part
    count = len(values) if weights is None else sum(weights[rank] for rank in sorted(values))
    return cast(Vector, total / count)
