"""The kind of scenarios with a `[sharing]` table: the first file to read about these jobs.

`loading` turns the scenario into a machine, its workers and the work of each worker's step. `run`
lets the workers train by the method. If anything is slow, they train once more with nothing slow.
`assemble` makes the outcome of the runs.
"""

import time
from dataclasses import replace
from math import inf

import numpy as np

from sim.config.added_file import blaming
from sim.config.errors import InputError
from sim.engine.play import Engine
from sim.hardware.cluster.network import Link
from sim.jobs.sharing.assemble import outcome
from sim.jobs.sharing.learning.tasks import Task
from sim.jobs.sharing.loading import from_scenario
from sim.jobs.sharing.outcome import Outcome
from sim.jobs.sharing.run import run
from sim.jobs.sharing.scenario import SharingScenario
from sim.jobs.sharing.server_placement import reserved_gpus
from sim.jobs.sharing.setup import KEEP_SPANS, SharingSetup
from sim.results.likely import Pace, of_bounds
from sim.scenario.scenario import BaseScenario
from sim.simulate import refuse_choices_of_a_step

SCENARIO, ANSWER = SharingScenario, Outcome
LACKS = (
    "has workers that share updates ([sharing]): it has no step of the whole job",
    "use `sim run`, or a scenario without [sharing]",
)
_STATE = 12.0  # bytes of a parameter in a checkpoint: fp32 weights and two moments (Adam)


def set_up(
    scenario: SharingScenario, *, task: Task | None = None, brief: bool = False
) -> SharingSetup:
    """The workers on their machine. `task`, an object or a Python file that makes it, replaces the
    scenario's task; `brief` keeps no spans for pictures. Raises `InputError`."""
    with blaming(type(scenario.sharing).__module__):
        return from_scenario(scenario, task=task, keep_spans=0 if brief else KEEP_SPANS)


def answer(setup: SharingSetup, *, engine: Engine = "auto", unfold: bool = False) -> Outcome:
    """The outcome of a setup. If anything is slow, a second run with nothing slow shows its cost.
    Raises `InputError` for choices that only a synchronous step has."""
    why = "workers that share updates are played on the clock, each worker by itself"
    refuse_choices_of_a_step(setup.name, why, engine=engine, unfold=unfold)
    began = time.perf_counter()
    module = type(setup.plan).__module__
    # The outcome reports divergence, so numpy does not warn.
    with blaming(module), np.errstate(over="ignore", invalid="ignore"):
        pool = run(setup)
        healthy = None
        if not setup.is_healthy and pool.record.samples:
            healthy = run(setup.healthy, samples=pool.record.samples)
        return outcome(setup, pool, healthy, wall_seconds=time.perf_counter() - began)


def pace(setup: SharingSetup) -> Pace:
    """The mean pace of a run; without a model, a sample counts as one token."""
    played = answer(setup)
    updates, workers = max(played.updates, 1), len(setup.workers)
    topology, alone = setup.machine.topology, setup.plan.fails_alone
    each = topology.gpus_per_node
    bounds = played.time_low, played.time_expected, played.time_high
    return Pace(
        topology=topology,
        seconds=played.time / updates,
        tokens=played.samples / updates * setup.tokens,
        size=_STATE * setup.parameters,
        replicas=workers,
        inputs=played.inputs,
        fits=played.fits,
        sure=of_bounds(played.time, bounds, played.interval) if played.time else None,
        alone=workers if alone else 1,
        gpus_of_one=setup.plan.gpus_of_worker(each) + reserved_gpus(setup.plan, each),
        at_risk=played.time * workers / updates / 2.0 if alone else inf,
    )


def traffic(setup: SharingSetup) -> tuple[float, dict[Link, float]]:
    """The mean seconds of an update, and the mean bytes that it puts on each link."""
    with np.errstate(over="ignore", invalid="ignore"):
        pool = run(setup)
    updates = max(pool.record.updates, 1)
    sizes = {link: size / updates for link, size in pool.cluster.carried_by_link(protocol=True)}
    return pool.end / updates, sizes


def seeded(scenario: SharingScenario, number: int) -> SharingScenario:
    """The scenario with `number` added to its seed."""
    seed = scenario.sharing.seed + number
    return replace(scenario, sharing=replace(scenario.sharing, seed=seed))


def sharing_of(scenario: BaseScenario) -> SharingScenario:
    """Return the scenario if it is of this kind. Raises `InputError` otherwise."""
    if not isinstance(scenario, SharingScenario):
        raise InputError(scenario.name, "has no [sharing] table", "name a scenario with this table")
    return scenario
