"""Rows of a sweep's table from steps that were played together."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from sim.engine.accounts import (
    account_runs,
    bubble_fractions,
    critical_roles,
    of_run,
)
from sim.engine.fold import fold
from sim.engine.record import Record
from sim.engine.tracks import Runs
from sim.program.program import Program
from sim.results.assemble import StepFacts, facts_of, of_step
from sim.results.result import columns_of
from sim.scenario.setup import PlanSetup


def of_runs(
    runs: Runs, setups: Sequence[PlanSetup], programs: Sequence[Program], seen: dict[Any, StepFacts]
) -> Iterator[dict[str, Any]]:
    """Yield the columns of each run in the table of a sweep, equal to a `Result`'s columns. Runs of
    equal programs share the facts that `seen` keeps."""
    spent, critical = account_runs(runs), critical_roles(runs).tolist()
    bubbles = bubble_fractions(runs.roles, runs.step, spent).tolist()
    for column, (setup, program) in enumerate(zip(setups, programs, strict=True)):
        topology = setup.machine.topology
        key = id(program), topology.name, topology.backend
        facts = seen.get(key) or seen.setdefault(key, facts_of(setup, program))
        step, lowered = float(runs.step[column]), partial(fold, program, setup.machine)
        sure = facts.interval(program, step, partial(Record.of, runs, column, lowered))
        yield columns_of(
            {
                **of_step(setup, facts, step, sure),
                "breakdown": of_run(spent[critical[column]], column),
                "bubble_fraction": bubbles[column],
                "straggler_seconds": 0.0,
                "roles": len(runs.roles),
                "operations": runs.steps,
                "events": 0,
            }
        )
