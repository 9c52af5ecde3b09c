"""From a scenario to its result: the first file to read.

The files that a scenario names become a job (model, plan, stack, device) and a machine (topology,
collective library, sick parts). The job's plan becomes a program, what every rank does. The
program is folded, so that ranks which behave alike are one role, and played on the clock. The
timeline is read for its accounts.
"""

import gc
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal, cast

from sim.config.errors import InputError
from sim.config.schema import nearest
from sim.engine.accounts import Account, accounts, blame_stragglers
from sim.engine.clock import play
from sim.engine.fold import fold
from sim.engine.folded import Score
from sim.engine.timeline import Timeline
from sim.parallel.step import training_step
from sim.results.assemble import report
from sim.results.result import Result
from sim.scenario.scenario import Scenario, SharingScenario, load
from sim.scenario.setup import Setup, from_scenario
from sim.simulate_sharing import simulate_sharing

Engine = Literal["auto", "clock", "replay"]
ENGINES: tuple[Engine, ...] = ("auto", "clock", "replay")


def simulate(
    scenario: Scenario | str | os.PathLike[str], *, unfold: bool = False, engine: Engine = "auto"
) -> Result:
    """Predict one training step.

    `scenario` is a `Scenario` or a name such as "gpt3-175b-megatron"; `unfold` simulates every
    rank by itself, which gives the same answer more slowly. `engine` "replay" evaluates the step
    without a clock; "auto" takes the clock for one step, because a program has to be compiled
    before it can be replayed. A scenario with a `[sharing]` table has an `Outcome` instead
    (`sim.simulate_sharing`). Raises `InputError`.

    >>> result = simulate("gpt3-175b-megatron")
    >>> result.ranks, result.roles, result.fits
    (64, 8, True)
    """
    scenario = _scenario(scenario)
    if isinstance(scenario, SharingScenario):
        outcome: Any = simulate_sharing(scenario)
        return cast(Result, outcome)
    return run(from_scenario(scenario), unfold=unfold, engine=engine)


def _scenario(given: Any) -> Scenario:
    """A scenario as it is, or the one of a name or path."""
    if isinstance(given, Scenario):
        return given
    if isinstance(given, str | os.PathLike):
        return load(given)
    what = f"a {type(given).__name__} is no scenario"
    raise InputError("simulate", what, 'give a name such as "gpt3-175b-megatron", or a Scenario')


def run(setup: Setup, *, unfold: bool = False, engine: Engine = "auto") -> Result:
    """Predict one step of a job on a machine that are put together already."""
    if engine not in ENGINES:
        raise InputError("engine", f"{engine!r} is not one", nearest(engine, ENGINES))
    began = time.perf_counter()
    warnings: tuple[str, ...] = ()
    with garbage_left():
        program = training_step(setup.job)
        score = fold(program, setup.machine, unfold=unfold)
        if engine == "replay":
            timeline, warnings = _replayed(score)
        else:
            timeline = play(score)
        spent = accounts(timeline)
        healthy = None
        if not setup.machine.is_healthy:
            healthy = play(fold(program, setup.machine.healthy))
            blame_stragglers(spent, _of_same_stage(timeline, healthy))
    wall = time.perf_counter() - began
    result = report(setup, score, timeline, spent, wall_seconds=wall, healthy=healthy)
    return replace(result, warnings=(*result.warnings, *warnings)) if warnings else result


def _replayed(score: Score) -> tuple[Timeline, tuple[str, ...]]:
    from sim.engine.replay_timeline import replay  # numpy, which the clock does not need

    timeline, contended = replay(score)
    said = "transfers share links: replayed with the slowdowns of one clocked run"
    return timeline, (said,) if contended else ()


def _of_same_stage(timeline: Timeline, healthy: Timeline) -> list[Account]:
    """Per role of a timeline, the account of its stage in a healthy one."""
    by_stage = dict(zip((role.stage for role in healthy.roles), accounts(healthy), strict=True))
    return [by_stage[role.stage] for role in timeline.roles]


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
