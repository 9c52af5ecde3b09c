"""A training job over days: it runs, checkpoints, fails, restarts; a SimPy process tells it.

Faults strike components at random (exponential, or Weibull with a shape), are detected, and cost
the work since the last checkpoint and a restart. A broken node is replaced by a spare while there
is one; without any the job shrinks by the replicas it touches, or waits for a repair. Some nodes do
not break but turn slow and are detected late; all wait for the slowest meanwhile. Checkpoints are
no events: between two faults they come and go by a formula.
"""

from bisect import bisect_right
from collections.abc import Generator, Sequence
from dataclasses import field
from math import ceil, gamma, inf
from typing import Any

import numpy as np
import simpy

from sim.config.dataclass import dataclass

Process = Generator[simpy.Event, Any, None]

_RUNNING = ("productive", "checkpoints", "restart")  # a restart can be struck too
CAUSES = ("productive", "checkpoints", "lost work", "detection", "restart", "waiting", "slowdown")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One kind of fault: `rate` per second over all `components` of the job together.

    `shape` is Weibull's (1: exponential, no memory; below 1: new components fail more often).
    `breaks` says whether the node is gone until it is repaired. With `slows` > 1 the node does not
    fail but works so many times slower until it is noticed, or, where it `lasts` so long on average
    (s, exponential), until then: nobody stops for it. A `planned` stop is preceded by a checkpoint.
    """

    name: str
    rate: float
    components: int = 1
    shape: float = 1.0
    breaks: bool = False
    slows: float = 1.0
    planned: bool = False
    lasts: float | None = None


REJOIN = Fault(name="rejoin", rate=0.0, planned=True)  # a repaired node comes back


@dataclass(frozen=True, slots=True, kw_only=True)
class Conduct:
    """How the job is run: all times in s.

    A checkpoint every `interval` stops training for `stop`; it is safe `persist` later (an
    asynchronous one is copied out meanwhile; a blocking one has persist = 0). A fault is noticed
    after `detection`, a slow node after `slow_detection` (means of exponential times); `restart`
    brings the job back from its checkpoint, `in_place` (None: just so) after a fault that breaks no
    node, whose memory has a copy of it. `replicas` that can be given up one by one if
    `elastic`; `spares` are nodes that stand by, `repair` what a broken one takes. `at_risk` is the
    most work that a failure takes back: what no server or other worker has yet.
    """

    interval: float
    stop: float
    persist: float = 0.0
    detection: float = 60.0
    restart: float = 300.0
    in_place: float | None = None
    slow_detection: float = 3600.0
    spares: int = 0
    repair: float = 86400.0
    replicas: int = 1
    elastic: bool = False
    at_risk: float = inf

    @property
    def cycle(self) -> float:
        return self.interval + self.stop

    def worked(self, seconds: float) -> float:
        """Of so many seconds since a start those in which training does not stand still."""
        whole, rest = divmod(seconds, self.cycle)
        return seconds - whole * self.stop - max(rest - self.interval, 0.0)

    def until(self, worked: float) -> float:
        """The seconds from a start until so many are worked."""
        return worked + max(ceil(worked / self.interval) - 1, 0) * self.stop


@dataclass(slots=True)
class Ledger:
    """Seconds by cause, which add up to the time simulated, and what happened how often."""

    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(CAUSES, 0.0))
    faults: dict[str, int] = field(default_factory=dict)
    checkpoints: int = 0

    def move(self, source: str, target: str, seconds: float) -> None:
        self.seconds[source] -= seconds
        self.seconds[target] += seconds


def simulate(
    faults: Sequence[Fault], conduct: Conduct, *, seconds: float, rng: np.random.Generator
) -> Ledger:
    """The ledger of so many seconds; the same generator gives the same one.

    >>> quiet = Conduct(interval=1000.0, stop=10.0)
    >>> ledger = simulate([], quiet, seconds=5550.0, rng=np.random.default_rng(0))
    >>> ledger.seconds["productive"], ledger.seconds["checkpoints"], ledger.checkpoints
    (5500.0, 50.0, 5)
    """
    run = TrainingRun(simpy.Environment(), conduct, rng)
    for fault in faults:
        run.env.process(run.strikes(fault))
    run.env.run(until=seconds)
    run.close()
    return run.ledger


def durations(
    faults: Sequence[Fault],
    conduct: Conduct,
    *,
    productive: Sequence[float],
    longest: float,
    rng: np.random.Generator,
) -> list[float]:
    """The seconds after which so many are first `productive`, for each of some numbers of them,
    the least first, in the same history; infinite where it is not by the `longest`.

    >>> quiet = Conduct(interval=1000.0, stop=10.0)
    >>> rng = np.random.default_rng(0)
    >>> durations([], quiet, productive=[900.0, 5500.0, 1e6], longest=1e6, rng=rng)
    [900.0, 5550.0, inf]
    """
    run = TrainingRun(simpy.Environment(), conduct, rng, goals=productive)
    for fault in faults:
        run.env.process(run.strikes(fault))
    while run.goals and run.env.peek() < longest:
        run.env.step()
    if run.goals:
        run.env.run(until=longest)
        run.close()
    return run.reached + [inf] * len(run.goals)


def _fault_of(interrupt: simpy.Interrupt) -> Fault:
    fault = interrupt.cause
    assert isinstance(fault, Fault), "only faults interrupt a job"
    return fault


class TrainingRun:
    """A job and its faults.

    Between a start and the next fault, `worked` seconds lie behind the training at each change of
    its speed, and `trained` is what they were worth. `reached` are the times at which as many
    seconds were productive as each of the `goals` says, which are taken off meanwhile."""

    def __init__(
        self,
        env: simpy.Environment,
        conduct: Conduct,
        rng: np.random.Generator,
        goals: Sequence[float] = (),
    ) -> None:
        self.env, self.conduct, self.rng = env, conduct, rng
        self.ledger = Ledger()
        self.goals, self.reached = list(goals), list[float]()
        self.spares, self.missing = conduct.spares, 0
        self.slow: list[float] = []
        self._activity, self._since = "restart", 0.0
        self._start, self._worked, self._trained = 0.0, [0.0], [0.0]
        self._repaired = env.event()
        self._training = env.process(self._train())

    # --- The job ---------------------------------------------------------------------------------

    def _train(self) -> Process:
        while True:
            self._do("productive")
            self._start, self._worked, self._trained = self.env.now, [0.0], [0.0]
            try:
                yield self.env.event()  # nothing but a fault ends it
            except simpy.Interrupt as struck:
                yield from self._recover(_fault_of(struck))

    def _recover(self, fault: Fault) -> Process:
        """From a fault to training again; a further fault meanwhile begins the recovery anew."""
        self._lose(fault)
        while True:
            try:
                yield from self._notice(fault)
                yield from self._wait_for_nodes()
                self._do("restart")
                yield self.env.timeout(self._restart(fault))
                return
            except simpy.Interrupt as again:
                fault = _fault_of(again)
                self._lose(fault)

    def _restart(self, fault: Fault) -> float:
        elsewhere = fault.breaks or fault.slows > 1.0 or self.conduct.in_place is None
        return self.conduct.restart if elsewhere else self.conduct.in_place or 0.0

    def _lose(self, fault: Fault) -> None:
        """Work since the last checkpoint is gone, and so may be a node."""
        self._do("detection")
        if not (fault.planned or fault.slows > 1.0):
            lost = min(self._trained[-1] - self._safe(), self.conduct.at_risk)
            self.ledger.move("productive", "lost work", lost)
        self._worked, self._trained = [0.0], [0.0]
        if fault.breaks:
            self.env.process(self._repair())
            self.missing += not self.spares
            self.spares -= bool(self.spares)

    def _safe(self) -> float:
        """What was trained before the newest checkpoint that is written."""
        behind = self.env.now - self._start - self.conduct.persist
        written = max(behind, 0.0) // self.conduct.cycle
        worked = written * self.conduct.interval if written else 0.0
        return float(np.interp(worked, self._worked, self._trained))

    def _notice(self, fault: Fault) -> Process:
        """Time passes until a fault is seen; before a planned stop a checkpoint is taken."""
        if fault.planned or fault.slows > 1.0:
            self._do("checkpoints")
            yield self.env.timeout(self.conduct.stop)
        else:
            self._do("detection")
            yield self.env.timeout(self._exponential(self.conduct.detection))

    def _wait_for_nodes(self) -> Process:
        """Spares have stepped in; where there were none the job shrinks, or waits for a repair."""
        self._do("waiting")
        while self.missing and not self._shrinks:
            yield self._repaired

    def _repair(self) -> Process:
        yield self.env.timeout(self.conduct.repair)
        if not self.missing:
            self.spares += 1
            return
        running = self._shrinks
        self._account()
        self.missing -= 1
        done, self._repaired = self._repaired, self.env.event()
        done.succeed()
        if running:
            self._training.interrupt(REJOIN)

    # --- Its faults ---------------------------------------------------------------------------

    def strikes(self, fault: Fault) -> Process:
        """Strike whenever the next of the components fails; it is as good as new afterwards."""
        if fault.rate <= 0.0:
            return
        if fault.shape == 1.0:
            while True:
                yield self.env.timeout(self._exponential(1.0 / fault.rate))
                self._strike(fault)
        scale = fault.components / fault.rate / gamma(1.0 + 1.0 / fault.shape)
        due = scale * self.rng.weibull(fault.shape, fault.components)
        while True:
            first = int(due.argmin())
            yield self.env.timeout(float(due[first]) - self.env.now)
            self._strike(fault)
            due[first] += scale * self.rng.weibull(fault.shape)

    def _strike(self, fault: Fault) -> None:
        """Rates are those of running jobs: one that waits for nodes, or has not noticed yet that it
        has stopped, is not struck."""
        if not self._runs:
            return
        self.ledger.faults[fault.name] = self.ledger.faults.get(fault.name, 0) + 1
        if fault.slows > 1.0 or fault.lasts is not None:
            self.env.process(self._drag(fault))
        else:
            self._training.interrupt(fault)

    def _drag(self, fault: Fault) -> Process:
        """A node drags everyone until someone notices, and replacing it costs a restart; or until
        the state is over."""
        self._account()
        self.slow.append(fault.slows)
        mean = self.conduct.slow_detection if fault.lasts is None else fault.lasts
        yield self.env.timeout(self._exponential(mean))
        self._account()
        self.slow.remove(fault.slows)
        if self._runs and fault.lasts is None:
            self._training.interrupt(fault)

    def _exponential(self, mean: float) -> float:
        return float(self.rng.exponential(mean)) if 0 < mean < inf else 0.0

    # --- Bookkeeping -----------------------------------------------------------------------------

    @property
    def _runs(self) -> bool:
        return self._activity in _RUNNING

    @property
    def _shrinks(self) -> bool:
        return self.conduct.elastic and self.missing < self.conduct.replicas

    @property
    def speed(self) -> float:
        """Progress a second of running: less with slow nodes and with replicas given up."""
        slowest = max(self.slow, default=1.0)
        return (1.0 - self.missing / self.conduct.replicas) / slowest

    def _do(self, activity: str) -> None:
        self._account()
        self._activity = activity

    def _account(self) -> None:
        begun, self._since = self._since, self.env.now
        spent, seconds = self._since - begun, self.ledger.seconds
        if not spent:
            return
        if self._activity != "productive":
            seconds[self._activity] += spent
            return
        speed, cycle = self.speed, self.conduct.cycle
        first, last = begun - self._start, self._since - self._start
        worked = self.conduct.worked(last)
        new = worked - self._worked[-1]
        if self.goals and self.goals[0] <= seconds["productive"] + new * speed:
            self._reach(seconds["productive"] + new * speed, speed)
        seconds["productive"] += new * speed
        seconds["slowdown"] += new * (1.0 - speed)
        seconds["checkpoints"] += spent - new
        self.ledger.checkpoints += int(last // cycle - first // cycle)
        self._trained.append(self._trained[-1] + new * speed)
        self._worked.append(worked)

    def _reach(self, productive: float, speed: float) -> None:
        """Take off the goals up to the seconds to which the productive ones rise at a speed."""
        done, passed = self.ledger.seconds["productive"], bisect_right(self.goals, productive)
        for goal in self.goals[:passed]:
            worked = self._worked[-1] + (goal - done) / speed
            self.reached.append(self._start + self.conduct.until(worked))
        del self.goals[:passed]

    def close(self) -> None:
        """Account for what is under way at the end."""
        self._account()
