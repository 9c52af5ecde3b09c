"""The loop of a trainer and its servers, as processes on the engine's clock.

Three mechanisms together give every way in which trainer and servers take turns.

- *Admission.* A step has `prompts` groups. At version v of the weights, at most (v + 1 + staleness
  + oversample) x prompts groups have begun, not counting dropped groups. So a step's group never
  begins more than `staleness` steps ahead. With staleness 0, the sides take turns. With 1, a step
  of generation runs beside a step of training. With more, generation is a stream.
- *A batch.* As soon as `chunk` groups are ready, the trainer takes them, in the order in which they
  became ready. Groups begun beyond the bound of staleness are then dropped or kept.
- *A swap.* When new weights arrive, they wait for running answers, or running answers go on with
  the new weights, or they begin again.

Servers on the trainer's GPUs pause while it trains. A step of the trainer is divided into seconds
by cause, which add up to the step.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from math import floor

from sim.engine.live_cluster import Event, LiveCluster, Process
from sim.jobs.generation.server import Server
from sim.jobs.reinforcement.rollouts import Rollouts
from sim.jobs.reinforcement.samples import Group
from sim.jobs.reinforcement.scenario import Reinforcement
from sim.program.causes import Cause

GENERATION = Cause("generation", "waiting", "#e69f00")
REWARD = Cause("reward", "waiting", "#8c3373")
OLD = Cause("old log-probabilities", "compute", "#56b4e9")
REFERENCE = Cause("reference log-probabilities", "compute", "#b8a81a")
UPDATE = Cause("update", "compute", "#009e73")
WEIGHTS = Cause("weights to servers", "communication", "#cc79a7")
WAKING = Cause("sleep and wake", "communication", "#404040")
PHASES = (GENERATION, REWARD, OLD, REFERENCE, UPDATE, WEIGHTS, WAKING)

_ROUNDING = 1e-9
TRAINER = 0  # the trainer's role in the timeline


@dataclass(slots=True, eq=False)
class Step:
    """A step of the trainer: from `begin` to `end` (s), its seconds by cause (`spent`), and the
    groups from which it learnt. `number` is also the version of the weights that it trained."""

    number: int
    begin: float
    end: float = 0.0
    spent: dict[Cause, float] = field(default_factory=dict)
    groups: list[Group] = field(default_factory=list)


@dataclass(kw_only=True, eq=False)
class Loop:
    """The state of the loop. `forward` and `updates` take the lengths of answers (tokens) and
    return the trainer's seconds: of a forward pass, and of each update. Other functions are
    processes. `hand_over` brings weights to the servers. `sleep` moves the trainer's tensors to the
    host before generation, `wake` back after it; `fetch` and `park` move tensors before and after
    updates."""

    cluster: LiveCluster
    plan: Reinforcement
    forward: Callable[[Sequence[int]], float]
    updates: Callable[[Sequence[int]], Sequence[float]]
    hand_over: Callable[[], Process]
    sleep: Callable[[], Process]
    wake: Callable[[], Process]
    park: Callable[[], Process]
    fetch: Callable[[], Process]
    rollouts: Rollouts = field(init=False)
    version: int = 0
    consumed: int = 0
    filtered: int = 0
    ready: list[Group] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    _wanted: int = 0
    _enough: Event | None = None
    _draining: bool = False

    # --- Admission --------------------------------------------------------------------------------

    def admit(self) -> None:
        """Begin as many groups as the bound on staleness and the limit `concurrent` allow."""
        plan, running = self.plan, len(self.rollouts.running)
        ahead = self.version + 1 + plan.staleness + plan.oversample
        most = floor(ahead * plan.prompts + _ROUNDING) - self.consumed - len(self.ready) - running
        for _ in range(min(most, plan.concurrent - running) if plan.concurrent else most):
            self.rollouts.begin()

    def on_ready(self, group: Group) -> None:
        """Take a group whose answers all have their rewards."""
        if group.filtered:
            self.filtered += 1
            self.rollouts.counts.lost += group.written_tokens
        else:
            self.ready.append(group)
        if (group.filtered or self.plan.concurrent) and not self._draining:
            self.admit()
        if self._enough is not None and len(self.ready) >= self._wanted:
            enough, self._enough = self._enough, None
            enough.succeed()

    # --- The trainer ------------------------------------------------------------------------------

    def train(self) -> Process:
        """Run all steps: first the warm-up steps, which figures leave out, then the steps that
        count."""
        for number in range(self.plan.warmup + self.plan.steps):
            step = Step(number, self.cluster.now)
            yield from self._step(step)
            step.end = self.cluster.now
            self.steps.append(step)

    def _step(self, step: Step) -> Process:
        plan, shared = self.plan, self.plan.servers.shared
        self.admit()
        for chunk in range(plan.prompts // plan.taken):
            groups = yield from self._taken(step, plan.taken)
            step.groups += groups
            if self.consumed == (self.version + 1) * plan.prompts:
                self._drop_surplus()
            if shared and not chunk:
                yield from self._stand(step)
                yield from self._timed(step, WAKING, self.wake())
            yield from self._learn(step, groups)
        yield from self._swap(step)

    def _taken(self, step: Step, count: int) -> Generator[Event, object, list[Group]]:
        """Take `count` groups in the order in which they became ready. Waiting counts as generation
        until the last of their answers is written, and as reward from then on."""
        begin = self.cluster.now
        if len(self.ready) < count:
            self._wanted, self._enough = count, self.cluster.event()
            yield self._enough
        groups, self.ready = self.ready[:count], self.ready[count:]
        self.consumed += count
        written = min(max(max(group.written for group in groups), begin), self.cluster.now)
        self._book(step, GENERATION, begin, written)
        self._book(step, REWARD, written, self.cluster.now)
        yield from self._sleep(step, GENERATION, self.plan.padded(count) * self.plan.collected)
        return groups

    def _drop_surplus(self) -> None:
        """Drop groups that were begun beyond the bound on staleness: the groups begun last."""
        plan, rollouts = self.plan, self.rollouts
        if plan.surplus == "keep" or not plan.oversample:
            return
        ahead = floor(plan.staleness * plan.prompts + _ROUNDING)
        for group in self.ready[ahead:]:
            rollouts.counts.lost += group.written_tokens
        self.ready = self.ready[:ahead]
        for group in list(rollouts.running.values())[ahead - len(self.ready) :]:
            rollouts.drop(group)

    def _learn(self, step: Step, groups: list[Group]) -> Process:
        """Compute log-probabilities, then make updates. All answers are handed out to the ranks
        before each forward pass and before the updates."""
        samples = [sample for group in groups for sample in group.samples]
        lengths = [sample.tokens for sample in samples]
        handed = self.plan.padded(len(groups)) * self.plan.controller
        for asked, cause in ((self.plan.old, OLD), (self.plan.reference, REFERENCE)):
            if asked:
                yield from self._sleep(step, cause, handed + self.forward(lengths))
        yield from self._timed(step, UPDATE, self.fetch())
        for seconds in self.updates(lengths):
            yield from self._sleep(step, UPDATE, handed + seconds)
            handed = 0.0
        yield from self._timed(step, UPDATE, self.park())
        self.rollouts.counts.used += sum(sample.done for sample in samples)

    def _stand(self, step: Step) -> Process:
        """Pause the servers on the trainer's GPUs; they free the memory of their caches."""
        begin = self.cluster.now
        yield self.cluster.all_of([server.pause() for server in self._shared()])
        for server in self._shared():
            server.release_cache()
        self._book(step, GENERATION, begin, self.cluster.now)

    # --- Weights ----------------------------------------------------------------------------------

    def _swap(self, step: Step) -> Process:
        """Bring new weights to the servers."""
        rollouts, plan, begin = self.rollouts, self.plan, self.cluster.now
        self.version += 1
        if plan.swap == "drain" and not plan.servers.shared:
            self._draining = True
            yield rollouts.still()
            self._draining = False
            self._book(step, GENERATION, begin, self.cluster.now)
        begin = self.cluster.now
        yield self.cluster.all_of([server.pause() for server in rollouts.servers])
        yield from self.hand_over()
        self._book(step, WEIGHTS, begin, self.cluster.now)
        if plan.servers.shared:
            yield from self._timed(step, WAKING, self.sleep())
        for server in rollouts.servers:
            if plan.swap == "continue" and plan.recompute:
                server.release_cache()
            server.swap_weights(self.version)
        if plan.swap == "restart":
            rollouts.restart()
        for server in rollouts.servers:
            server.resume()

    def _shared(self) -> Sequence[Server]:
        return self.rollouts.servers[: self.rollouts.shared]

    # --- Accounts ---------------------------------------------------------------------------------

    def _sleep(self, step: Step, cause: Cause, seconds: float) -> Process:
        begin = self.cluster.now
        yield self.cluster.sleep(seconds)
        self._book(step, cause, begin, self.cluster.now)

    def _timed(self, step: Step, cause: Cause, process: Process) -> Process:
        begin = self.cluster.now
        yield from process
        self._book(step, cause, begin, self.cluster.now)

    def _book(self, step: Step, cause: Cause, begin: float, end: float) -> None:
        if end > begin:
            step.spent[cause] = step.spent.get(cause, 0.0) + end - begin
            self.cluster.span(TRAINER, "compute", cause, cause, begin, end, step=step.number)
