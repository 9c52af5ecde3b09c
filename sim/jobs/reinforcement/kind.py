"""The kind of scenarios with a `[reinforcement]` table: the first file to read about these jobs.

`setup` turns the scenario into a trainer and servers on a machine. Both sides take turns, or work
at the same time (`loop`). Servers write answers (`rollouts`), the trainer's seconds come from the
ordinary simulation of its plan (`training`), and weights cross the links (`transfer`). `assemble`
turns the played loop into the answer. `moves` suggests other divisions of the GPUs.
"""

import time
from dataclasses import replace
from typing import Any

from sim.config.progress import waited
from sim.engine.play import Engine
from sim.jobs.reinforcement.answer import ReinforcementAnswer
from sim.jobs.reinforcement.assemble import inputs_of, outcome
from sim.jobs.reinforcement.moves import moves as moves
from sim.jobs.reinforcement.scenario import ReinforcementScenario
from sim.jobs.reinforcement.setup import KEEP_SPANS, ReinforcementSetup, from_scenario
from sim.results.likely import Pace, checkpoint_bytes
from sim.simulate import garbage_left, refuse_choices_of_a_step, refuse_task

SCENARIO, ANSWER = ReinforcementScenario, ReinforcementAnswer
LACKS = (
    "is a loop of generation and training ([reinforcement]): it has no step of one program",
    "use `sim run`, or ask about training alone, in a scenario without [reinforcement]",
)


def set_up(
    scenario: ReinforcementScenario, *, task: Any = None, brief: bool = False
) -> ReinforcementSetup:
    """The trainer and the servers. Raises `InputError`."""
    refuse_task(scenario.name, task)
    return from_scenario(scenario, keep_spans=0 if brief else KEEP_SPANS)


@waited("the loop")
def answer(
    setup: ReinforcementSetup, *, engine: Engine = "auto", unfold: bool = False
) -> ReinforcementAnswer:
    """Play the loop. Raises `InputError`, also for choices that only a training step has."""
    why = "a loop of generation and training is played on the clock"
    refuse_choices_of_a_step(setup.name, why, engine=engine, unfold=unfold)
    began = time.perf_counter()
    with garbage_left():
        found = _played(setup)
        if setup.scenario.straggler:
            sound = from_scenario(replace(setup.scenario, straggler=()), keep_spans=0)
            lost = found.step_time - _played(sound).step_time
            found = replace(found, straggler_seconds=lost)
    return replace(found, wall_seconds=time.perf_counter() - began)


def _played(setup: ReinforcementSetup) -> ReinforcementAnswer:
    loop = setup.loop()
    loop.cluster.run(until=loop.cluster.start(loop.train()))
    return outcome(setup, loop)


def pace(setup: ReinforcementSetup) -> Pace:
    """The pace of a mean step, in tokens from which the trainer learns."""
    played = answer(setup)
    training = setup.training
    return Pace(
        topology=setup.machine.topology,
        seconds=played.step_time,
        tokens=played.tokens_per_second * played.step_time,
        size=checkpoint_bytes(training.setup(training.unit).job),
        replicas=training.replicas,
        inputs=inputs_of(setup),
        fits=played.fits,
    )


def seeded(scenario: ReinforcementScenario, number: int) -> ReinforcementScenario:
    """The scenario with `number` added to its seed."""
    plan = scenario.reinforcement
    return replace(scenario, reinforcement=replace(plan, seed=plan.seed + number))
