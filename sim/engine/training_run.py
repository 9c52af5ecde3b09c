"""A training job over days, as a SimPy process: it runs, writes checkpoints, fails and restarts.

Faults strike components at random times (exponential, or Weibull with a shape) and are detected
later. A fault costs a restart and the work since the last checkpoint. A spare node replaces a
broken node. Without a spare, an elastic job gives up a replica; other jobs wait for a repair. Some
nodes do not break but turn slow and are detected late; until then all nodes wait for the slowest.
Checkpoints are no events: a formula counts them between two faults.
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

_RUNNING = ("productive", "checkpoints", "restart")  # faults also strike during a restart
CAUSES = ("productive", "checkpoints", "lost work", "detection", "restart", "waiting", "slowdown")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A kind of fault, with a `rate` per second over all `components` of the job together.

    `shape` is Weibull's shape (1: exponential, no memory; below 1: new components fail more often).
    `breaks` says whether the node is lost until it is repaired. With `slows` > 1 the node does not
    fail; until the fault is noticed, the node is that many times slower. With `lasts`, the slowness
    ends by itself after this time on average (s, exponential), and the job does not stop for it. A
    checkpoint precedes a `planned` stop.
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
    """How the job is run; all times are in s.

    A checkpoint every `interval` stops training for `stop`, and is safe `persist` later (0 for a
    blocking checkpoint; an asynchronous checkpoint is copied out meanwhile). A fault is noticed
    after `detection`, a slow node after `slow_detection` (means of exponential times). A restart
    from the checkpoint takes `restart`. After a fault that breaks no node, a copy in the nodes'
    memory shortens the restart to `in_place` (None: no copy). An `elastic` job can give up its
    `replicas` one by one. `spares` are nodes on standby; the repair of a broken node takes
    `repair`. `at_risk` is the most work that a failure can lose because it is nowhere else.
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
        """The seconds of training, without stops, in the given `seconds` since a start."""
        whole, rest = divmod(seconds, self.cycle)
        return seconds - whole * self.stop - max(rest - self.interval, 0.0)

    def until(self, worked: float) -> float:
        """The seconds from a start until `worked` seconds of training are done."""
        return worked + max(ceil(worked / self.interval) - 1, 0) * self.stop


@dataclass(slots=True)
class Ledger:
    """Seconds by cause, which add up to the simulated time; counts of faults and of checkpoints."""

    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(CAUSES, 0.0))
    faults: dict[str, int] = field(default_factory=dict)
    checkpoints: int = 0

    def move(self, source: str, target: str, seconds: float) -> None:
        self.seconds[source] -= seconds
        self.seconds[target] += seconds


def simulate(
    faults: Sequence[Fault], conduct: Conduct, *, seconds: float, rng: np.random.Generator
) -> Ledger:
    """Simulate a job for some `seconds` and return its ledger.

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
    """Simulate a job and return the times (s) at which its productive seconds reach each of the
    ascending numbers in `productive`; infinite if that takes more than `longest` seconds.

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

    `_worked` has the seconds of training from the last start to each change of the job's speed, and
    `_trained` the productive seconds up to then. `reached` has the times at which the productive
    seconds reached a goal; reached goals are removed from `goals`."""

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
                yield self.env.event()  # only a fault ends training
            except simpy.Interrupt as struck:
                yield from self._recover(_fault_of(struck))

    def _recover(self, fault: Fault) -> Process:
        """Recover from a fault until training can start. A further fault restarts the recovery."""
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
        """Lose the work since the last checkpoint, and the node if the fault breaks it."""
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
        """The productive seconds since the last start that the newest safe checkpoint keeps."""
        behind = self.env.now - self._start - self.conduct.persist
        written = max(behind, 0.0) // self.conduct.cycle
        worked = written * self.conduct.interval if written else 0.0
        return float(np.interp(worked, self._worked, self._trained))

    def _notice(self, fault: Fault) -> Process:
        """Let time pass until a fault is noticed. A planned stop, or the stop for a slow node,
        takes the time of a checkpoint instead."""
        if fault.planned or fault.slows > 1.0:
            self._do("checkpoints")
            yield self.env.timeout(self.conduct.stop)
        else:
            self._do("detection")
            yield self.env.timeout(self._exponential(self.conduct.detection))

    def _wait_for_nodes(self) -> Process:
        """Wait for repairs if nodes are missing and the job cannot shrink."""
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
        """Strike the job whenever a component fails; the component is as good as new afterwards."""
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
        """Strike the job with a fault. Rates hold for running jobs, so a fault does not strike a
        job that waits for nodes or has not noticed an earlier fault yet."""
        if not self._runs:
            return
        self.ledger.faults[fault.name] = self.ledger.faults.get(fault.name, 0) + 1
        if fault.slows > 1.0 or fault.lasts is not None:
            self.env.process(self._drag(fault))
        else:
            self._training.interrupt(fault)

    def _drag(self, fault: Fault) -> Process:
        """Slow the job down until the slow node is noticed; its replacement costs a restart. A
        fault that `lasts` for some time ends by itself instead."""
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
        """The progress per second of training, which slow nodes and missing replicas reduce."""
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
        """Move goals up to `productive` seconds to `reached`, with their times at this speed."""
        done, passed = self.ledger.seconds["productive"], bisect_right(self.goals, productive)
        for goal in self.goals[:passed]:
            worked = self._worked[-1] + (goal - done) / speed
            self.reached.append(self._start + self.conduct.until(worked))
        del self.goals[:passed]

    def close(self) -> None:
        """Count the seconds of the activity under way at the end of the simulation."""
        self._account()
