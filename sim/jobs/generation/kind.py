"""The kind of scenarios with a `[generation]` table: the first file to read about these jobs.

The blocks of the model become forward passes on a rank (`passes`). `speed`, `attention` and
`timing` time their kernels and collectives. Servers play requests on the engine's clock
(`server`), in leaps over equal steps (`leap`, `cache`).
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from typing import Any, NamedTuple

from sim.config.dataclass import dataclass
from sim.config.progress import waited
from sim.engine.events import carried
from sim.engine.live_cluster import Event, LiveCluster, Process
from sim.engine.play import Engine
from sim.engine.timeline import Role, Timeline
from sim.hardware.cluster.price import per_million
from sim.jobs.generation.answer import Generated, Spread, State
from sim.jobs.generation.batch import Answer, Request
from sim.jobs.generation.scenario import Generation, GenerationScenario
from sim.jobs.generation.server import Server
from sim.jobs.generation.setup import GenerationSetup, from_scenario
from sim.program.causes import COMPUTE
from sim.results.answer import Inputs
from sim.scenario.scenario import name_of
from sim.scenario.settings import flat
from sim.simulate import garbage_left, refuse_choices_of_a_step, refuse_task
from sim.variability.laws import generator

SCENARIO, ANSWER = GenerationScenario, Generated
LACKS = ("answers prompts: it has no training step", "ask it of a scenario with a [plan]")
_STATES = 400  # points of a course


def set_up(
    scenario: GenerationScenario, *, task: Any = None, brief: bool = False
) -> GenerationSetup:
    """The servers of a scenario. Raises `InputError`."""
    refuse_task(scenario.name, task)
    return from_scenario(scenario)


@waited("the answers")
def answer(setup: GenerationSetup, *, engine: Engine = "auto", unfold: bool = False) -> Generated:
    """Play the servers until all prompts are answered. Raises `InputError`, also for choices that
    only a training step has (`engine`, `unfold`)."""
    why = "each server is played on the clock by itself"
    refuse_choices_of_a_step(setup.name, why, engine=engine, unfold=unfold)
    began = time.perf_counter()
    with garbage_left():
        played = _play(setup)
        lost = 0.0
        if not setup.machine.is_healthy:
            lost = played.end - _play(replace(setup, machine=setup.machine.healthy)).end
        return _answer(setup, played, lost, began)


def seeded(scenario: GenerationScenario, number: int) -> GenerationScenario:
    """The scenario with `number` added to its seed."""
    plan = scenario.generation
    return replace(scenario, generation=replace(plan, seed=plan.seed + number))


# --- Prompts --------------------------------------------------------------------------------------


def requests(plan: Generation, prompt: int) -> list[Request]:
    """The requests of a prompt: a request for each of its answers."""
    tokens = int(plan.prompt.drawn(plan.seed, "prompts", prompt, 1)[0])
    prefix = prompt if plan.answers > 1 else None
    lengths = plan.answer.drawn(plan.seed, "answers", prompt, plan.answers)
    cap = plan.answer.cap
    return [Request(tokens, int(length), prefix, cap=cap) for length in lengths]


@dataclass(frozen=True, slots=True)
class _Played:
    """Servers that have answered all prompts, and the answers."""

    cluster: LiveCluster
    servers: Sequence[Server]
    answers: Sequence[Answer]

    @property
    def ends(self) -> list[float]:
        """When each server ran out of work for the last time (s); 0 if it never had work."""
        return [server.moments[-1].at if server.moments else 0.0 for server in self.servers]

    @property
    def end(self) -> float:
        return max(self.ends)


def _play(setup: GenerationSetup) -> _Played:
    cluster, done = LiveCluster(setup.machine), list[Event]()
    servers = [
        Server(cluster, setup.speed, f"{setup.name}, server {number}", keep=True,
               slowdown=setup.slowdown(number))
        for number in range(setup.servers)
    ]  # fmt: skip
    cluster.start(_arrivals(setup.scenario.generation, cluster, servers, done))
    cluster.run()
    return _Played(cluster, servers, [carried(event) for event in done])


def _arrivals(
    plan: Generation, cluster: LiveCluster, servers: Sequence[Server], done: list[Event]
) -> Process:
    """Submit each prompt when it arrives, to the server with the fewest answers to write."""
    intervals = generator(plan.seed, "arrivals")
    for prompt in range(plan.prompts):
        if plan.rate is not None:
            yield cluster.sleep(float(intervals.exponential(1.0 / plan.rate)))
        server = min(servers, key=lambda each: each.batch.size + len(each.batch.queue))
        done += [server.submit(request) for request in requests(plan, prompt)]
    yield cluster.sleep(0.0)


# --- The answer -----------------------------------------------------------------------------------


def _answer(setup: GenerationSetup, played: _Played, lost: float, began: float) -> Generated:
    scenario, speed, topology = setup.scenario, setup.speed, setup.machine.topology
    cluster, servers, done, end = played.cluster, played.servers, played.answers, played.end
    tokens = sum(server.batch.tokens for server in servers)
    means = _means(servers, speed.room)
    batch = max(1, round(means.batch))
    step = speed.account(batch, means.read)
    paces = [each.pace for each in done if each.pace is not None]
    device, layout = topology.device, scenario.generation.layout
    return Generated(
        scenario=setup.name,
        inputs=Inputs(model=name_of(scenario.model), cluster=topology.name, device=device.name,
                      gpus=topology.gpus, stack=speed.engine.name, precision=layout.precision,
                      plan={"servers": len(servers), **asdict(layout)},
                      change=dict(flat(scenario.change)), notes=setup.notes,
                      price=str(topology.price or "")),
        fits=True,
        events=cluster.events,
        wall_seconds=time.perf_counter() - began,
        straggler_seconds=lost,
        timeline=_timeline(cluster, servers, end),
        servers=len(servers),
        answers=len(done),
        time=end,
        tokens=tokens,
        prompt_tokens=sum(server.batch.computed for server in servers),
        preempted=sum(server.batch.preemptions for server in servers),
        first=Spread.of([each.wait or 0.0 for each in done]),
        each=Spread.of(paces) if paces else None,
        whole=Spread.of([(each.ended or 0.0) - each.submitted for each in done]),
        lengths=Spread.of([each.tokens for each in done]),
        batch=means.batch,
        cache=means.cache,
        fullest=means.fullest,
        idle=1.0 - sum(server.busy for server in servers) / (end * len(servers)),
        tail=1.0 - min(played.ends) / end,
        step=step,
        limit=max(step, key=lambda part: step[part]),
        memory=speed.memory,
        room=device.usable_memory,
        cache_tokens=speed.cache_tokens,
        dollars_per_million=per_million(topology.price, topology.gpus, tokens / end),
        course=tuple(_course(servers, speed.room, end)),
    )  # fmt: skip


class _Means(NamedTuple):
    """Means over the time in which servers have work: a server's batch, the held share of its
    cache, and the tokens that attention reads in a step. `fullest` is the largest held share of a
    cache."""

    batch: float
    cache: float
    read: float
    fullest: float


def _means(servers: Sequence[Server], room: float) -> _Means:
    """The means over all servers. A quantity that grows between two states counts with the mean of
    its two values."""
    busy = batch = held = read = fullest = 0.0
    for server in servers:
        for state, behind in pairwise(server.moments):
            seconds = behind.at - state.at
            if not state.batch:
                continue
            busy += seconds
            batch += seconds * state.batch
            held += seconds * (state.used + max(state.used, behind.used)) / 2
            read += seconds * (state.read + max(state.read, behind.read)) / 2
            fullest = max(fullest, state.used, behind.used)
    return _Means(batch / busy, held / busy / room, read / busy, fullest / room)


def _course(servers: Sequence[Server], room: float, end: float) -> Iterator[State]:
    """Yield the states of all servers at `_STATES` + 1 equally spaced moments."""
    places = [0] * len(servers)
    for number in range(_STATES + 1):
        at = end * number / _STATES
        batch, held = 0, 0.0
        for server, moments in enumerate(each.moments for each in servers):
            while places[server] + 1 < len(moments) and moments[places[server] + 1].at <= at:
                places[server] += 1
            if moments and moments[places[server]].at <= at:
                batch += moments[places[server]].batch
                held += moments[places[server]].used
        yield State(at=at, batch=batch, cache=held / room / len(servers))


def _timeline(cluster: LiveCluster, servers: Sequence[Server], end: float) -> Timeline:
    """The timeline of the servers, with a span for each batch."""
    roles = []
    for number, server in enumerate(servers):
        gpus = server.speed.layout.gpus
        roles.append(Role(index=number, name=f"server {number}", stage=0, ranks=gpus,
                          first_rank=number * gpus))  # fmt: skip
        for state, behind in pairwise(server.moments):
            if state.batch:
                cluster.span(number, "batch", f"{state.batch}", COMPUTE, state.at, behind.at)
    return cluster.timeline(roles, end)
