"""Other ways to run a loop on its GPUs: which GPUs write answers, in which layouts, how stale.

`sim plan` plays each way and ranks the ways by answers a second. For each number of the trainer's
GPUs, a walk finds the best layout: it starts at the scenario's layout and goes to better
neighbours. During the walk, transfers are assumed to share no links. A few steps count, after the
first steps, in which the loop fills. If servers have GPUs of their own, only a sample of the
servers is played. Steps are compared as if their answers had the expected length.
"""

from collections.abc import Iterator
from dataclasses import field, replace
from math import ceil, floor, inf
from typing import Any

from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.jobs.generation.speed import Speed
from sim.jobs.reinforcement.answer import ReinforcementAnswer
from sim.jobs.reinforcement.scenario import Servers
from sim.jobs.reinforcement.setup import ReinforcementSetup, from_scenario
from sim.jobs.reinforcement.training import Training
from sim.model.kinds import experts_of
from sim.parallel.plan import Plan
from sim.results.by_line import Suggestion

_EIGHTHS = range(2, 7)  # numbers of eighths of all GPUs that may be servers
_STALENESS = (1.0, 2.0)  # bounds (steps) for servers with GPUs of their own
_STEPS = 2  # steps that are played and counted
_RECOMPUTE = ("none", "selective", "full")


def moves(setup: ReinforcementSetup) -> list[Suggestion]:
    """Suggest that the two sides take turns on all GPUs. Also suggest each division of the GPUs
    between the sides, with a staleness of at most one step and of at most two steps. Servers have
    half, once or twice the tensor parallelism of the scenario. The simplest ways come first."""
    layout = setup.plan.servers.layout
    node = setup.machine.topology.gpus_per_node
    degrees = [tp for tp in (layout.tp // 2, layout.tp, 2 * layout.tp) if 1 <= tp <= node]
    ways = [_Way(0, tp, 0.0) for tp in degrees]
    ways += [
        _Way(gpus, tp, staleness)
        for staleness in _STALENESS
        for gpus in _divisions(setup)
        for tp in degrees
        if gpus % (tp * layout.pp * layout.dp) == 0
    ]
    trainers = _Trainers(setup.training)
    return [
        Suggestion(
            line="",
            change=way.told,
            why="another way to divide",
            samples=1.0,
            made=_Made(way, trainers),
        )
        for way in ways
    ]


def _divisions(setup: ReinforcementSetup) -> Iterator[int]:
    """Yield numbers of GPUs for servers: about eighths of all GPUs, in whole nodes if
    there are several."""
    total = len(setup.trainer) + setup.plan.servers.gpus
    node = setup.machine.topology.gpus_per_node
    found = set()
    for part in _EIGHTHS:
        gpus = total * part // 8
        gpus -= gpus % node if total > node else 0
        if 0 < gpus < total:
            found.add(gpus)
    yield from sorted(found)


@dataclass(frozen=True)
class _Trainers:
    """The trainer with the best layout for each number of GPUs (`known`), which is searched once.
    `tried` has all layouts with the seconds of an update (None if a layout does not fit). `speeds`
    keeps the servers' speeds, so the servers' steps are computed only once, too."""

    given: Training
    known: dict[int, Training] = field(default_factory=dict)
    refused: dict[int, InputError] = field(default_factory=dict)
    tried: list[dict[str, Any]] = field(default_factory=list)
    speeds: dict[tuple[int, float], Speed] = field(default_factory=dict)

    def beside(self, setup: ReinforcementSetup, training: Training) -> ReinforcementSetup:
        """The setup with this trainer, and with the speed of servers that was computed before."""
        key = setup.speed.layout.tp, setup.engine.memory
        return replace(setup, training=training, speed=self.speeds.setdefault(key, setup.speed))

    def on(self, gpus: int) -> Training:
        """The trainer on `gpus` GPUs. Raises `InputError` if no tried layout fits."""
        if gpus in self.refused:
            raise self.refused[gpus]
        if gpus not in self.known:
            try:
                self.known[gpus] = self._walk(gpus)
            except InputError as error:
                self.refused[gpus] = error
                raise
        return self.known[gpus]

    def _walk(self, gpus: int) -> Training:
        """Walk from the given layout to its best neighbour, as long as a neighbour is better."""
        nearest = min(self.known, key=lambda count: abs(count - gpus), default=0)
        start = self.known[nearest].plan if nearest else self.given.plan
        topology, tried = self.given.topology.with_gpus(gpus), dict[str, tuple[float, Training]]()

        def seconds(plan: Plan) -> float:
            if (key := repr(plan)) not in tried:
                training = replace(self.given, plan=plan, topology=topology, alone=True, _known={})
                tried[key] = _seconds(training), training
                took = tried[key][0]
                parts = {axis: getattr(plan, axis) for axis in ("tp", "pp", "ep")}
                names = plan.recompute
                rule = names if isinstance(names, str) else ", ".join(names)
                self.tried.append({"gpus": gpus, **parts, "recompute": rule,
                                   "update": None if took == inf else took})  # fmt: skip
            return tried[key][0]

        best = start = replace(start, dp=None)
        while True:
            found = min((best, *_neighbours(best, self.given)), key=seconds)
            if seconds(found) == inf:  # no neighbour fits: look further
                found = min(_wider(start, self.given), key=seconds)
            if seconds(found) == inf:
                fault = f"no layout of the trainer that was tried fits on {gpus} GPUs"
                raise InputError(self.given.name, fault, "give it more GPUs, or a [plan] that fits")
            if found is best:
                return replace(tried[repr(best)][1], alone=False, _known={})
            best = found


def _seconds(training: Training) -> float:
    """Seconds of an update with typical answers; infinite if the trainer does not fit."""
    gpus, replicas = training.topology.gpus, training.replicas
    if not replicas or gpus % replicas:
        return inf
    try:
        if training.memory.total > training.room:
            return inf
        return sum(training.updates(training.typical))
    except InputError:
        return inf


def _neighbours(plan: Plan, training: Training) -> Iterator[Plan]:
    """Yield plans with a degree doubled or halved, or with another rule of recomputation."""
    degrees = ["tp", "pp", *(["ep"] if experts_of(training.model) else [])]
    for name in degrees:
        for degree in (getattr(plan, name) * 2, getattr(plan, name) // 2):
            if degree:
                yield _with(plan, **{name: degree})
    for rule in _RECOMPUTE:
        yield _with(plan, recompute=rule)


def _wider(plan: Plan, training: Training) -> Iterator[Plan]:
    """Yield plans that need less memory, all with full recomputation."""
    node = training.topology.gpus_per_node
    for tp in (1, 2, 4, 8):
        for pp in (1, 2, 4, 8):
            if tp <= node:
                yield _with(plan, tp=tp, pp=pp, recompute="full")


def _with(plan: Plan, **changes: object) -> Plan:
    """A plan with changed values; if the number of stages changes, layers are divided evenly."""
    pp = changes.get("pp", plan.pp)
    changes |= {"layers": None} if pp != plan.pp else {}
    changed = replace(plan, **changes)  # type: ignore[arg-type]
    return replace(changed, sequence_parallel=changed.tp > 1)


@dataclass(frozen=True, slots=True)
class _Way:
    """A way to run the loop: servers of `tp` ranks on `gpus` GPUs of their own (0: on the trainer's
    GPUs, in turns), with a bound on `staleness` in steps."""

    gpus: int
    tp: int
    staleness: float

    @property
    def told(self) -> str:
        """The way in a few words."""
        servers = f"servers of {self.tp}"
        if not self.gpus:
            return f"turns on all GPUs, {servers}"
        bound = "1 step" if self.staleness == 1.0 else f"{self.staleness:g} steps"
        return f"{self.gpus:,} GPUs write, {servers}, at most {bound} ahead"


@dataclass(frozen=True, slots=True)
class _Made:
    """Turns a setup of any seed into the setup of a way, with the best trainer for the way."""

    way: _Way
    trainers: _Trainers

    @property
    def layouts(self) -> list[dict[str, Any]]:
        """All layouts of the trainer that were tried, for all numbers of its GPUs."""
        return self.trainers.tried

    def least(self, setup: ReinforcementSetup) -> float:
        """The fewest GPU-seconds that the way can take for an answer, within some percent. Raises
        `InputError` if no layout of the trainer fits."""
        made, loop = self(setup), setup.plan
        training, answers = made.training, loop.prompts * loop.answers
        passes = loop.old + loop.reference
        typical = training.typical
        trained = sum(training.updates(typical)) + passes * training.forward(typical)
        trained *= answers / len(typical)
        written = answers * loop.answer.expected / (made.servers * _rate(made))
        seconds = max(trained, written) if self.way.gpus else trained + written
        return seconds * made.machine.topology.gpus / answers

    def seconds(self, answer: ReinforcementAnswer, setup: ReinforcementSetup) -> float:
        """Seconds of the answer's step, scaled to answers of the expected length."""
        return answer.step_time * setup.plan.expected / answer.mean_length

    def __call__(self, setup: ReinforcementSetup) -> ReinforcementSetup:
        way, scenario, loop = self.way, setup.scenario, setup.plan
        total = len(setup.trainer) + loop.servers.gpus + loop.reward.gpus
        training = self.trainers.on(total - way.gpus - loop.reward.gpus)
        given = loop.servers
        servers = Servers(
            engine=given.engine, tuning=given.tuning, gpus=way.gpus,
            shared=not way.gpus, layout=replace(given.layout, tp=way.tp),
        )  # fmt: skip
        changed = replace(
            loop,
            servers=servers,
            staleness=way.staleness,
            swap="continue" if way.gpus else "drain",
            oversample=0.0,
            chunk=loop.chunk if way.gpus else 0,
            steps=_STEPS,
            warmup=1 + ceil(way.staleness),
        )
        made = replace(scenario, reinforcement=changed, plan=training.plan, gpus=total)
        found = self.trainers.beside(from_scenario(made, keep_spans=0), training)
        return found.sampled if way.gpus else self._fitted(found)

    def _fitted(self, setup: ReinforcementSetup) -> ReinforcementSetup:
        """The setup with servers that leave room for the trainer's tensors on shared GPUs. Raises
        `InputError` if there is no room."""
        if not setup.misfit():
            return setup
        scenario, training = setup.scenario, setup.training
        left = training.room - (training.memory.rest - setup.offloaded)
        memory = floor(100.0 * left / training.topology.device.usable_memory) / 100.0
        loop = scenario.reinforcement
        servers = replace(loop.servers, tuning=loop.servers.tuning | {"memory": memory})
        fitted = replace(scenario, reinforcement=replace(loop, servers=servers))
        return self.trainers.beside(from_scenario(fitted, keep_spans=0), training)


def _rate(setup: ReinforcementSetup) -> float:
    """The most tokens a second of a server whose cached answers are half written."""
    speed, engine, typical = setup.speed, setup.engine, setup.training.typical
    half = max(sum(tokens**2 for tokens in typical) / sum(typical) / 2.0, 1.0)
    most = int(min(engine.sequences * speed.layout.dp, speed.cache_tokens / half)) or 1
    batches = {most, *(1 << power for power in range(most.bit_length()))}
    return max(batch / speed.decode(batch, batch * half) for batch in batches)
