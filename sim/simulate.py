"""From a scenario to its result: the first file to read.

The files that a scenario names become a job (model, plan, stack, device) and a machine (topology,
collective library, sick parts). The job's plan becomes a program, what every rank does. The
program is folded, so that ranks which behave alike are one role, and played. The record is read for
its accounts.
"""

import gc
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from sim.config.errors import InputError
from sim.config.progress import waited
from sim.engine.accounts import Account, accounts, blame_stragglers
from sim.engine.ordering import fixed_orders
from sim.engine.play import Engine, play
from sim.engine.record import Record
from sim.parallel.step import training_step
from sim.results.assemble import report
from sim.results.result import Result
from sim.scenario.scenario import RecordedScenario, Scenario, SharingScenario, load
from sim.scenario.setup import Setup, from_scenario
from sim.sharing.learning.own_task import Task, refuse_task
from sim.simulate_recording import simulate_recording
from sim.simulate_sharing import simulate_sharing


def simulate(
    scenario: Scenario | str | os.PathLike[str],
    *,
    unfold: bool = False,
    engine: Engine = "auto",
    task: Task | None = None,
) -> Result:
    """Predict one training step; `sim.run` (`sim.samples.run`) changes the scenario before.

    `scenario` is a `Scenario` or a name such as "gpt3-175b-megatron"; `unfold` simulates every
    rank by itself, which gives the same answer more slowly. `engine` "clock" plays the step on the
    SimPy clock, "replay" without one, which is faster and exact where no transfers share a link;
    "auto" takes it there, and the result says so (`Result.engine`). A scenario with a `[sharing]`
    table has an `Outcome` instead (`sim.simulate_sharing`), of the learning task that the scenario
    names or of `task`, which may be a Python file that makes one (`own_task`). Raises `InputError`.

    >>> result = simulate("gpt3-175b-megatron")
    >>> result.ranks, result.roles, result.fits
    (64, 8, True)
    """
    scenario = load(scenario)
    if isinstance(scenario, SharingScenario):
        _refuse_engine(scenario, unfold, engine)
        outcome: Any = simulate_sharing(scenario, task=task)
        return cast(Result, outcome)
    refuse_task(scenario.name, task)
    if isinstance(scenario, RecordedScenario):
        return simulate_recording(scenario, unfold=unfold, engine=engine)
    return run(from_scenario(scenario), unfold=unfold, engine=engine)


def _refuse_engine(scenario: SharingScenario, unfold: bool, engine: Engine) -> None:
    """Raise `InputError` for choices that only a synchronous step has."""
    what = "workers that share updates are played on the clock, every one by itself"
    for chosen, name in ((unfold, "unfold"), (engine == "replay", "engine replay")):
        if chosen:
            raise InputError(scenario.name, what, f"leave --{name} out")


@waited("the step")
def run(setup: Setup, *, unfold: bool = False, engine: Engine = "auto") -> Result:
    """Predict one step of a job and a machine that are set up already."""
    began = time.perf_counter()
    with garbage_left():
        program = training_step(setup.job)
        record = play(program, setup.machine, engine=engine, unfold=unfold)
        spent = accounts(record)
        healthy = None
        if not setup.machine.is_healthy:
            healthy = play(program, setup.machine.healthy, engine=engine)
            blame_stragglers(spent, _of_same_stage(record, healthy))
        others = {
            name: play(other, setup.machine, engine=engine).step_time
            for name, other in fixed_orders(setup.job)
        }
        wall = time.perf_counter() - began
        return report(
            setup, program, record, spent, wall_seconds=wall, healthy=healthy, others=others
        )


def _of_same_stage(record: Record, healthy: Record) -> list[Account]:
    """Per role of a record, the account of its stage in a healthy one."""
    by_stage = dict(zip((role.stage for role in healthy.roles), accounts(healthy), strict=True))
    return [by_stage[role.stage] for role in record.roles]


@contextmanager
def garbage_left() -> Iterator[None]:
    """A simulation allocates much and frees nothing, so looking for garbage only costs time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
