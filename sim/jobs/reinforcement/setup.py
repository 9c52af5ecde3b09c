"""How does a scenario with a `[reinforcement]` table become a trainer and servers?"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from math import gcd
from typing import Any, ClassVar

from sim.config import limit
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.engine.live_cluster import Event, LiveCluster
from sim.engine.machine import Machine
from sim.jobs.generation import engine as engines
from sim.jobs.generation.engine import Engine
from sim.jobs.generation.server import Server
from sim.jobs.generation.speed import Speed
from sim.jobs.reinforcement import transfer
from sim.jobs.reinforcement.loop import Loop
from sim.jobs.reinforcement.rollouts import Rollouts
from sim.jobs.reinforcement.samples import Sample
from sim.jobs.reinforcement.scenario import Reinforcement, ReinforcementScenario
from sim.jobs.reinforcement.services import Drawn, Waiting
from sim.jobs.reinforcement.training import Training
from sim.kind import WithoutProgram
from sim.model.block import block
from sim.model.counts import parameters, whole
from sim.model.kernels import BYTES
from sim.model.model import Model
from sim.model.reading import load as load_named
from sim.parallel.mesh import axes
from sim.scenario.scenario import name_of
from sim.scenario.settings import flat
from sim.scenario.setup import PlanSetup, load_model, load_stack, load_topology, machine
from sim.variability.laws import generator

KEEP_SPANS = 50_000
_ANSWERS = 1024  # the fewest answers of a step that a sample of the servers writes
_OF_ANSWER = 1.2e-4  # s of one core to play an answer on its server and in the loop


@dataclass(frozen=True, kw_only=True, eq=False)
class ReinforcementSetup(WithoutProgram):
    """A trainer and servers on the GPUs of a cluster, checked. The first GPUs are the trainer's.
    GPUs of separate servers follow, then GPUs of a reward model."""

    kind: ClassVar[str] = "sim.jobs.reinforcement.kind"

    scenario: ReinforcementScenario
    plan: Reinforcement
    machine: Machine
    training: Training
    engine: Engine
    speed: Speed
    reward: Speed | None = None
    model: str = ""
    stack: str = ""
    change: Mapping[str, Any] = field(default_factory=dict)
    keep_spans: int = KEEP_SPANS

    @property
    def name(self) -> str:
        return self.scenario.name

    @property
    def columns(self) -> dict[str, Any]:
        """The numbers of GPUs, in all, of the trainer and of the servers."""
        return {
            "gpus": self.machine.topology.gpus,
            "gpus.training": len(self.trainer),
            "gpus.servers": self.servers * self.speed.layout.gpus,
        }

    @property
    def trainer(self) -> range:
        """The GPUs of the trainer."""
        return range(self.training.topology.gpus)

    @property
    def shared(self) -> int:
        """The number of servers on the trainer's GPUs."""
        return len(self.trainer) // self.speed.layout.gpus if self.plan.servers.shared else 0

    @property
    def servers(self) -> int:
        """The number of all servers."""
        return self.shared + self.plan.servers.gpus // self.speed.layout.gpus

    @cached_property
    def places(self) -> tuple[tuple[int, ...], ...]:
        """The GPUs of each server."""
        each, trainer_gpus = self.speed.layout.gpus, len(self.trainer)
        first = [*range(0, self.shared * each, each)]
        first += [trainer_gpus + place for place in range(0, self.plan.servers.gpus, each)]
        return tuple(tuple(range(gpu, gpu + each)) for gpu in first)

    def slowdown(self, server: int) -> float:
        """The factor by which a server's slowest GPU lengthens the server's steps."""
        slow = self._trained.machine.slowdown
        return max(slow.get(gpu, 1.0) for gpu in self.places[server])

    @property
    def sampled(self) -> "ReinforcementSetup":
        """The setup that plays the fewest servers that write at least `_ANSWERS` answers a step."""
        plan, parts = self.plan, self._divided.values()
        whole = gcd(*parts) if self._even else 1
        most = max(plan.prompts * plan.answers // _ANSWERS, 1)
        each = max(part for part in range(1, whole + 1) if whole % part == 0 and part <= most)
        return replace(self, plan=replace(plan, sample=each))

    @property
    def brief(self) -> "ReinforcementSetup":
        """The setup of a single step, for figures of its answer that are not times."""
        sampled = self.sampled
        return replace(sampled, plan=replace(sampled.plan, steps=1, warmup=0), keep_spans=0)

    @property
    def _even(self) -> bool:
        """Whether all servers are equally fast."""
        return len({self.slowdown(server) for server in range(self.servers)}) <= 1

    @property
    def _divided(self) -> dict[str, int]:
        """The numbers that `sample` has to divide, by name."""
        shared = "servers on the trainer's GPUs"
        return self.plan.parts | {"servers": self.servers, shared: self.shared}

    @cached_property
    def _trained(self) -> PlanSetup:
        """The trainer's job with the fewest microbatches."""
        return self.training.setup(self.training.unit)

    @cached_property
    def weights(self) -> float:
        """Bytes of all weights in the precision of the servers."""
        return parameters(self.training.model) * float(BYTES[self.speed.layout.precision])

    @property
    def effort(self) -> float:
        """How long the simulation takes (s of one core)."""
        return _answers(self.plan) * _OF_ANSWER

    @cached_property
    def held(self) -> dict[str, dict[str, float]]:
        """For each pool: the bytes by part on its fullest GPU at the peak."""
        speed, training = self.speed, self.training
        served = {
            "weights": speed.weights,
            "workspace": self.engine.workspace,
            "cache": speed.cache_bytes,
        }
        memory = training.memory
        trained = dict(memory.parts) | {"fragmentation": memory.fragmented}
        if not self.plan.servers.shared:
            return {"trainer": trained, "servers": served}
        left = memory.rest - self.offloaded
        beside = served | {"trainer's tensors": max(left, 0.0)}
        return {"while training": trained, "while generating": beside}

    @property
    def offloaded(self) -> float:
        """Bytes of each of the trainer's GPUs that the host holds while servers use the GPU."""
        return self._bytes(self.plan.offload)

    def _bytes(self, names: Sequence[str]) -> float:
        """Bytes of parts of the trainer's memory, on its fullest GPU."""
        parts = self.training.memory.parts if names else {}
        return sum(parts.get(name, 0.0) for name in names)

    def misfit(self) -> str:
        """The pool that does not fit into memory, with its bytes; empty if all pools fit."""
        room = self.training.room
        for name, parts in self.held.items():
            if (total := sum(parts.values())) > room:
                gib = 2.0**30
                return f"{name}: needs {total / gib:.1f} GiB, but has {room / gib:.1f} GiB"
        return ""

    def loop(self) -> Loop:
        """The loop, ready to be played."""
        cluster, each = LiveCluster(self.machine, keep_spans=self.keep_spans), self.plan.sample
        servers = [
            Server(cluster, self.speed, name=f"{self.name}, server {number}",
                   slowdown=self.slowdown(number))
            for number in range(0, self.servers, each)
        ]  # fmt: skip
        moves = transfer.Transfer(
            cluster=cluster,
            table=self.plan.weights,
            sides=self._sides,
            size=self.weights,
            tensors=tensors(self.training.model),
        )
        loop = Loop(
            cluster=cluster,
            plan=self.plan.sampled,
            forward=lambda lengths: self.training.forward([*lengths] * each),
            updates=lambda lengths: self.training.updates([*lengths] * each),
            hand_over=moves.run,
            sleep=lambda: transfer.moved(cluster, self.trainer, self.offloaded, "down"),
            wake=lambda: transfer.moved(cluster, self.trainer, self.offloaded, "up"),
            park=lambda: transfer.parked(cluster, self.trainer, self._bytes(self.plan.parked)),
            fetch=lambda: transfer.moved(
                cluster, self.trainer, self._bytes(self.plan.parked), "up"
            ),
        )
        loop.rollouts = Rollouts(
            cluster, loop.plan, servers, self.shared // each, self._rewards(loop), loop.on_ready
        )
        return loop

    @property
    def _sides(self) -> transfer.Sides:
        copies = transfer.copies(self._trained.job)
        return transfer.Sides(trainer=tuple(self.trainer), copies=copies, servers=self.places)

    def _rewards(self, loop: Loop) -> Callable[[Sample], Event]:
        cluster, table = loop.cluster, loop.plan.reward
        if self.reward is not None:
            speed = self.reward
            readers = Waiting(cluster, table.gpus // table.layout.gpus // self.plan.sample)
            return lambda sample: readers.serve(speed.prefill(sample.tokens))
        assert table.service is not None, "checked by its class"
        waiting = Waiting(cluster, table.service.workers)
        seconds = Drawn(table.service.of, generator(self.plan.seed, "rewards"))
        return lambda sample: waiting.serve(seconds.next())


def tensors(model: Model) -> int:
    """The number of tensors of a checkpoint: the matrices of all blocks and of each expert."""
    run = whole(model, 1)
    return sum(
        often * sum(1 for group in part.parameters for _ in part.shapes(group))
        for kind, often in Counter(model.row).items()
        for part in (block(kind, run),)
    )


def from_scenario(
    scenario: ReinforcementScenario, *, keep_spans: int = KEEP_SPANS
) -> ReinforcementSetup:
    """Load the files that a scenario names and place the loop on its GPUs. Raises `InputError`."""
    plan, where = scenario.reinforcement, f"{scenario.name}, reinforcement"
    _check(plan, where)
    answers = _answers(plan)
    limit.refuse_long(where, f"{answers:,} answers", answers * _OF_ANSWER)
    others = plan.servers.gpus + plan.reward.gpus
    topology = load_topology(scenario)
    trainers = _trainers(scenario, topology.gpus, others, where)
    topology = topology.with_gpus(trainers + others)
    links = [slow for slow in scenario.straggler if slow.link is not None]
    on = machine(topology, None, links, scenario.name)
    model, servers = load_model(scenario), plan.servers
    engine = engines.load(servers.engine, servers.tuning, where=f"{where}.servers")
    training = Training(
        name=scenario.name,
        model=model,
        stack=load_stack(scenario, scenario.stack),
        topology=topology.with_gpus(trainers),
        plan=scenario.plan,
        row=plan.row or plan.prompt.cap + plan.answer.cap,
        typical=_typical(plan, scenario.plan.global_batch),
        deal=plan.deal,
        stragglers=scenario.straggler,
    )
    setup = ReinforcementSetup(
        scenario=scenario,
        plan=plan,
        machine=on,
        training=training,
        engine=engine,
        speed=Speed(model, on, engine, plan.servers.layout, where=f"{where}.servers"),
        reward=_reward(plan, on, engine, where),
        model=name_of(scenario.model),
        stack=name_of(scenario.stack),
        change=dict(flat(scenario.change)),
        keep_spans=keep_spans,
    )
    _ = setup._trained  # refuses a plan that does not fit
    _check_places(setup, where)
    return setup


def _answers(plan: Reinforcement) -> int:
    """The number of answers of all played steps."""
    return (plan.steps + plan.warmup) * plan.sampled.prompts * plan.answers


def _trainers(scenario: ReinforcementScenario, gpus: int, others: int, where: str) -> int:
    """The number of the trainer's GPUs: as the plan lays out, or the rest of `gpus`."""
    plan = scenario.plan
    if scenario.gpus is None and plan.dp is not None:
        return plan.degree(axes())
    left = (scenario.gpus or gpus) - others
    if left < 1:
        fault = f"servers and reward take {others} GPUs, which leaves none to the trainer"
        raise InputError(where, fault, "set more gpus, or fewer servers.gpus")
    return left


def _typical(plan: Reinforcement, batch: int) -> tuple[int, ...]:
    """Tokens of the first answers, with their prompts: as many answers as an update has."""
    lengths: list[int] = []
    for number in range(-(-batch // plan.answers)):
        prompt = int(plan.prompt.drawn(plan.seed, "prompts", number, 1)[0])
        drawn = plan.answer.drawn(plan.seed, "answers", number, plan.answers)
        lengths += [prompt + int(tokens) for tokens in drawn]
    return tuple(lengths[:batch])


def _reward(plan: Reinforcement, on: Machine, engine: Engine, where: str) -> Speed | None:
    table = plan.reward
    if not table.model:
        return None
    model = load_named(table.model)
    return Speed(model, on, engine, table.layout, where=f"{where}.reward")


def _check(plan: Reinforcement, where: str) -> None:
    """Raise `InputError` for settings that contradict one another."""
    shared = plan.servers.shared
    if shared and plan.chunk:
        fault = "chunk is set, but servers on the trainer's GPUs pause from the first chunk on"
        raise InputError(where, fault, "leave chunk out, or servers.shared")
    ahead = plan.staleness or (plan.oversample and plan.surplus == "keep")
    if shared and ahead and plan.swap == "drain":
        fault = 'swap = "drain", but answers on the trainer\'s GPUs pause while it trains'
        raise InputError(where, fault, 'set swap = "continue"')
    if plan.row and plan.row < plan.prompt.cap + plan.answer.cap:
        longest = plan.prompt.cap + plan.answer.cap
        fault = f"rows of {plan.row:,} tokens, but answers may have {longest:,} with their prompts"
        raise InputError(where, fault, f"set row >= {longest}")


def _check_sample(setup: ReinforcementSetup, where: str) -> None:
    """Raise `InputError` for a sample of servers that does not represent the other servers."""
    sample = setup.plan.sample
    for name, number in setup._divided.items():
        if number % sample:
            fault = f"sample = {sample} does not divide {name} = {number}"
            raise InputError(where, fault, "set sample = 1, or a divisor of all these numbers")
    if sample > 1 and not setup._even:
        fault = f"sample = {sample}, but slow GPUs make some servers slower than others"
        raise InputError(where, fault, "set sample = 1, which plays each server")


def _check_places(setup: ReinforcementSetup, where: str) -> None:
    """Raise `InputError` for servers that do not fill their GPUs, and for memory or storage that
    the loop needs and the cluster lacks."""
    each, plan = setup.speed.layout.gpus, setup.plan
    pools = {"servers.gpus": plan.servers.gpus}
    pools |= {"gpus of the trainer": len(setup.trainer)} if plan.servers.shared else {}
    for name, gpus in pools.items():
        if gpus % each:
            fault = f"{name} = {gpus} is no multiple of a server's {each} GPUs"
            raise InputError(f"{where}.servers", fault, "change the servers' layout, or the GPUs")
    _check_sample(setup, where)
    if plan.reward.gpus % plan.reward.layout.gpus:
        fault = f"{plan.reward.gpus} GPUs are no multiple of the layout's {plan.reward.layout.gpus}"
        raise InputError(f"{where}.reward", fault, "change gpus")
    kept = {"offload": plan.offload if setup.shared else (), "parked": plan.parked}
    for key, names in kept.items():
        if names and setup.machine.topology.host is None:
            fault = f"{key} needs hosts, which {setup.machine.topology.name} does not describe"
            raise InputError(where, fault, f"set {key} = [], or describe [host]")
    storage = setup.machine.topology.storage
    remote = storage is not None and storage.remote
    if plan.weights.way == "storage" and plan.weights.storage is None and not remote:
        fault = f"{setup.machine.topology.name} has no storage that all nodes reach"
        raise InputError(f"{where}.weights", fault, 'set storage = "20 GB/s" or add [storage]')
    if plan.weights.way in ("host", "buckets") and setup.machine.topology.host is None:
        fault = f"{setup.machine.topology.name} does not describe its hosts"
        raise InputError(f"{where}.weights", fault, "set another way, or describe [host]")
