"""From a `[generation]` table to servers that can be played."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any, ClassVar, cast

from sim.config import limit
from sim.config.dataclass import dataclass
from sim.config.errors import FitError, InputError
from sim.engine.machine import Machine
from sim.jobs.generation import engine as engines
from sim.jobs.generation.attention import ASSUMED, READINGS
from sim.jobs.generation.passes import checked, chunked
from sim.jobs.generation.scenario import GenerationScenario
from sim.jobs.generation.speed import Speed
from sim.kind import WithoutProgram
from sim.model.transformer import Transformer
from sim.results.formatting import several
from sim.scenario.scenario import name_of
from sim.scenario.setup import load_model, load_topology, machine

_OF_ANSWER = 4e-5  # s of one core for the simulation of an answer


@dataclass(frozen=True, kw_only=True, eq=False)
class GenerationSetup(WithoutProgram):
    """A scenario's servers, each as fast as `speed`, on their machine."""

    kind: ClassVar[str] = "sim.jobs.generation.kind"

    scenario: GenerationScenario
    machine: Machine
    speed: Speed
    servers: int

    @property
    def name(self) -> str:
        return self.scenario.name

    @property
    def columns(self) -> dict[str, Any]:
        """The numbers of GPUs and of servers."""
        return {"gpus": self.machine.topology.gpus, "servers": self.servers}

    def slowdown(self, server: int) -> float:
        """How many times as long the steps of a server take because of its slowest GPU."""
        each = self.speed.layout.gpus
        ranks = range(server * each, (server + 1) * each)
        return max(self.machine.slowdown.get(rank, 1.0) for rank in ranks)

    @property
    def answers(self) -> int:
        return self.scenario.generation.prompts * self.scenario.generation.answers

    @property
    def effort(self) -> float:
        """The order of magnitude of the simulation's time (s of a core)."""
        return self.answers * _OF_ANSWER

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Sentences about assumptions and omissions."""
        return tuple(self._notes())

    def _notes(self) -> Iterator[str]:
        device, model = self.machine.topology.device, self.speed.passes.model
        if device.generation not in READINGS:
            yield f"attention to a cache was not timed on {device.name}; {ASSUMED}'s rates stand in"
        used = self.machine.topology.gpus
        asked = self.scenario.gpus or used
        if asked > used:
            yield f"{asked - used:,} of {asked:,} GPUs are in no server, and are not counted"
        if model.mtp:
            yield "modules of multi-token prediction do not run: one token a step"
        if chunked(cast(Transformer, self.speed.model)):
            yield "attention to a chunk of a sequence is timed as a window, which takes longer"
        yield from model.notes


def from_scenario(scenario: GenerationScenario) -> GenerationSetup:
    """The servers of a scenario. Raises `InputError`."""
    plan, where = scenario.generation, f"{scenario.name}, generation"
    answers = plan.prompts * plan.answers
    limit.refuse_long(where, f"{answers:,} answers", answers * _OF_ANSWER)
    model = load_model(scenario)
    model = model if model.name else model.changed(name=name_of(scenario.model))
    plan.layout.check(checked(model, where), where)
    topology, each = load_topology(scenario), plan.layout.gpus
    gpus = scenario.gpus or (plan.servers * each if plan.servers else topology.gpus)
    servers = plan.servers or gpus // each
    if any(straggler.link for straggler in scenario.straggler):
        fault = "servers are simulated without shared links, so a slow link has no known cost"
        raise InputError(where, fault, "name a rank or a node")
    if not servers or servers * each > gpus:
        wanted = several(plan.servers or 1, "server")
        fault = f"{wanted} of {several(each, 'GPU')}, but gpus = {gpus}"
        raise InputError(where, fault, "raise gpus, or lower servers, tp, pp or dp")
    on = machine(topology.with_gpus(servers * each), None, scenario.straggler, scenario.name)
    engine = engines.load(plan.engine, plan.tuning, where=where)
    speed = Speed(model, on, engine, plan.layout, where)
    longest = plan.prompt.cap + plan.answer.cap
    if longest > speed.cache_tokens:
        fault = f"the longest prompt and answer have {longest:,} tokens"
        remedy = "raise tp or pp, or lower the caps"
        raise FitError(where, f"{fault}, but the cache holds {speed.cache_tokens:,}", remedy)
    return GenerationSetup(scenario=scenario, machine=on, speed=speed, servers=servers)
