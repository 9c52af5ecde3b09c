"""A training job over days: it runs, checkpoints, fails, restarts; a SimPy process tells it.

Faults strike components at random (exponential, or Weibull with a shape), are detected, and cost
the work since the last checkpoint and a restart. A broken node is replaced by a spare while there
is one; without any the job shrinks by the replicas it touches, or waits for a repair. Some nodes do
not break but turn slow and are detected late; all wait for the slowest meanwhile.
"""

from collections.abc import Generator, Sequence
from dataclasses import field
from math import gamma, inf
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


def duration(
    faults: Sequence[Fault],
    conduct: Conduct,
    *,
    productive: float,
    longest: float,
    rng: np.random.Generator,
) -> float:
    """After how many seconds so many are `productive`; infinite where it is not by the `longest`.

    >>> quiet = Conduct(interval=1000.0, stop=10.0)
    >>> rng = np.random.default_rng(0)
    >>> duration([], quiet, productive=5500.0, longest=1e6, rng=rng)
    5550.0
    """
    run = TrainingRun(simpy.Environment(), conduct, rng)
    for fault in faults:
        run.env.process(run.strikes(fault))
    done = run.ledger.seconds
    while done["productive"] < productive:
        if run.env.peek() > longest:
            return inf
        run.env.step()
    return run.env.now - (done["productive"] - productive)  # it ends within its last interval


def _fault_of(interrupt: simpy.Interrupt) -> Fault:
    fault = interrupt.cause
    assert isinstance(fault, Fault), "only faults interrupt a job"
    return fault


class TrainingRun:
    """A job and its faults. `trained` is the productive time behind the weights, `safe` that of the
    newest checkpoint that is written."""

    def __init__(self, env: simpy.Environment, conduct: Conduct, rng: np.random.Generator) -> None:
        self.env, self.conduct, self.rng = env, conduct, rng
        self.ledger = Ledger()
        self.spares, self.missing = conduct.spares, 0
        self.slow: list[float] = []
        self.trained = self.safe = 0.0
        self.failures = 0
        self._activity, self._since = "productive", 0.0
        self._repaired = env.event()
        self._training = env.process(self._train())

    # --- The job ---------------------------------------------------------------------------------

    def _train(self) -> Process:
        while True:
            try:
                yield from self._until_checkpoint()
            except simpy.Interrupt as struck:
                yield from self._recover(_fault_of(struck))

    def _until_checkpoint(self) -> Process:
        """Train for an interval, stop for a checkpoint, and call it safe once it is written."""
        self._do("productive")
        yield self.env.timeout(self.conduct.interval)
        self._do("checkpoints")
        covered = self.trained
        yield self.env.timeout(self.conduct.stop)
        self.ledger.checkpoints += 1
        self.env.process(self._write(covered))

    def _write(self, covered: float) -> Process:
        before = self.failures
        yield self.env.timeout(self.conduct.persist)
        if self.failures == before:  # a failure meanwhile loses it
            self.safe = covered

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
            lost = min(self.trained - self.safe, self.conduct.at_risk)
            self.ledger.move("productive", "lost work", lost)
        self.trained = self.safe
        self.failures += 1
        if fault.breaks:
            self.env.process(self._repair())
            self.missing += not self.spares
            self.spares -= bool(self.spares)

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
        spent, self._since = self.env.now - self._since, self.env.now
        if self._activity == "productive":
            progress = spent * self.speed
            self.ledger.seconds["productive"] += progress
            self.ledger.seconds["slowdown"] += spent - progress
            self.trained += progress
        else:
            self.ledger.seconds[self._activity] += spent

    def close(self) -> None:
        """Account for what is under way at the end."""
        self._account()
