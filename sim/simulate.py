"""From a scenario to its result: the first file to read.

A scenario names files. They become a job (model, plan, stack, device) and a machine (topology,
collective library, slow parts). The job becomes a program, which says what every rank does. Ranks
that behave alike are folded into one role, and the program is played. The record of the play gives
the account of every second.

This module implements the contract of `sim.kind` for jobs that a `[plan]` lays out.
"""

import gc
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from sim.config import limit
from sim.config.errors import InputError
from sim.config.progress import waited
from sim.engine.accounts import Account, accounts, blame_stragglers
from sim.engine.play import Engine, play
from sim.engine.record import Record
from sim.parallel.job import Job
from sim.program.program import Program
from sim.results.assemble import report
from sim.results.result import Result
from sim.scenario.scenario import Scenario
from sim.scenario.setup import PlanSetup, from_scenario

SCENARIO, ANSWER, QUESTIONS = Scenario, Result, "sim.step_questions"
LACKS = (
    "has no script: a plan lays it out",
    "leave out --advise: `sim explain` tries changes of the plan",
)
_OF_PASS, _HELD = 1e-4, 2.5e3  # s and bytes for each pass if every rank is simulated


def set_up(scenario: Scenario, *, task: Any = None, brief: bool = False) -> PlanSetup:
    """Return the job and the machine that a scenario names. Raises `InputError`."""
    refuse_task(scenario.name, task)
    return from_scenario(scenario)


@waited("the step")
def answer(setup: PlanSetup, *, engine: Engine = "auto", unfold: bool = False) -> Result:
    """Predict one training step.

    `unfold` simulates every rank by itself, which gives the same answer more slowly. The `engine`
    "clock" plays the step on the SimPy clock. "replay" plays it without a clock, which is faster
    and exact if no transfers share a link. "auto" replays whenever that is exact; `Result.engine`
    says which engine ran. Raises `InputError`.
    """
    if unfold:
        _refuse_many_ranks(setup)
    began = time.perf_counter()
    with garbage_left():
        program = setup.program
        record = play(program, setup.machine, engine=engine, unfold=unfold)
        spent = accounts(record)
        healthy = None
        if not setup.machine.is_healthy:
            healthy = play(program, setup.machine.healthy, engine=engine)
            blame_stragglers(spent, _of_same_stage(record, healthy))
        others = {
            name: play(other, setup.machine, engine=engine).step_time
            for name, other in _fixed_orders(setup.job)
        }
        wall = time.perf_counter() - began
        return report(
            setup, program, record, spent, wall_seconds=wall, healthy=healthy, others=others
        )


def _fixed_orders(job: Job) -> Iterable[tuple[str, Program]]:
    """Return the programs of a job under the named schedules, if its order of passes was searched
    for; otherwise nothing. The answer compares their step times with that of the order found."""
    if job.order is None:
        return ()
    from sim.engine.ordering import fixed_orders

    return fixed_orders(job)


def _refuse_many_ranks(setup: PlanSetup) -> None:
    """Raise `InputError` for more ranks than time and memory allow to simulate one by one."""
    ranks, plan = setup.machine.topology.gpus, setup.job.plan
    passes = ranks * 2 * plan.interleave * plan.microbatches
    limit.refuse_long("--unfold", f"{ranks:,} ranks", passes * _OF_PASS)
    limit.refuse_large("--unfold", f"{ranks:,} ranks", passes * _HELD)


def refuse_task(scenario: str, task: Any) -> None:
    """Raise `InputError` if a learning task is given to a scenario without workers that learn."""
    if task is not None:
        fault = "has no [sharing] table: nothing learns"
        raise InputError(scenario, fault, "leave the task out")


def refuse_choices_of_a_step(setup: str, why: str, *, engine: Engine, unfold: bool) -> None:
    """Raise `InputError` for options that apply only to a single step. `setup` is the name of the
    setup, and `why` tells the user how it is played instead."""
    for chosen, name in ((unfold, "unfold"), (engine == "replay", "engine replay")):
        if chosen:
            raise InputError(setup, why, f"leave --{name} out")


def _of_same_stage(record: Record, healthy: Record) -> list[Account]:
    """For each role of a record, the account of its stage in the record of a healthy machine."""
    by_stage = dict(zip((role.stage for role in healthy.roles), accounts(healthy), strict=True))
    return [by_stage[role.stage] for role in record.roles]


@contextmanager
def garbage_left() -> Iterator[None]:
    """Switch Python's garbage collection off for a while. A simulation allocates much and frees
    almost nothing, so a search for garbage only costs time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
