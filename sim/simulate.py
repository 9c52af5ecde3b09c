"""From a scenario to its result: the first file to read.

A scenario names files. They become a job (model, plan, stack, device) and a machine (topology,
collective library, slow parts). The job becomes a program, which says what every rank does. Ranks
that behave alike are folded into one role, and the program is played. The record of the play gives
the account of every second.

This module implements the contract of `sim.kind` for jobs that a `[plan]` lays out.
"""

import gc
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sim.config import limit
from sim.config.errors import InputError
from sim.config.progress import waited
from sim.engine.accounts import Account, accounts, blame_stragglers
from sim.engine.machine import Machine
from sim.engine.play import Engine, play
from sim.engine.record import Record
from sim.model.kernels import Attention, Gemm, Kernel
from sim.parallel.job import Job, stage_kernels
from sim.program.program import Program
from sim.results.answer import Figures
from sim.results.assemble import facts_of, inputs_of, of_runs, report
from sim.results.result import Result, misfit_of
from sim.scenario.scenario import Scenario
from sim.scenario.settings import flat
from sim.scenario.setup import PlanSetup, from_scenario, load_topology

if TYPE_CHECKING:
    from sim.results.likely import Pace
    from sim.uncertainty.draws import Split

SCENARIO, ANSWER = Scenario, Result
LACKS = (
    "has no script: a plan lays it out",
    "leave out --advise: `sim explain` tries changes of the plan",
)
_OF_PASS, _HELD = 1e-4, 2.5e3  # s and bytes for each pass of an unfolded rank


def set_up(scenario: Scenario, *, task: Any = None, brief: bool = False) -> PlanSetup:
    """The job and the machine that a scenario names. Raises `InputError`."""
    refuse_task(scenario.name, task)
    return from_scenario(scenario)


@waited("the step")
def answer(setup: PlanSetup, *, engine: Engine = "auto", unfold: bool = False) -> Result:
    """Predict one training step.

    `unfold` simulates every rank by itself, which gives the same answer more slowly. The `engine`
    "clock" plays the step on the SimPy clock. "replay" plays it without a clock, which is faster
    and exact where no transfers share a link. "auto" replays wherever that is exact;
    `Result.engine` says which engine it took. Raises `InputError`.
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
    """The programs of a job under the named schedules, if its order of passes was searched for;
    otherwise nothing. The answer compares their step times with the order that was found."""
    if job.order is None:
        return ()
    from sim.engine.ordering import fixed_orders

    return fixed_orders(job)


def together(setups: Sequence[PlanSetup]) -> dict[int, Figures]:
    """The figures of the setups whose steps can be played without a clock, by their places in
    `setups`. Steps of equal structure are played together."""
    from sim.engine.replay.together import runs  # only needed for several steps

    began = time.perf_counter()
    found: dict[int, Figures] = {}
    with garbage_left():
        steps = dict(_steps(setups))
        numbers = list(steps)
        for members, played in runs([*steps.values()]):
            chosen = [numbers[member] for member in members]
            rows = of_runs(played, [setups[n] for n in chosen], [steps[n][0] for n in chosen])
            found |= {
                number: Figures(row, misfit_of(row["fits"], row["memory.total"], row["capacity"]))
                for number, row in zip(chosen, rows, strict=True)
            }
    wall = (time.perf_counter() - began) / max(len(found), 1)
    return {number: replace(own, wall_seconds=wall) for number, own in found.items()}


def _steps(setups: Sequence[PlanSetup]) -> Iterator[tuple[int, tuple[Program, Machine]]]:
    """Yields number, program and machine of each setup. Setups with slow parts or a searched order
    are left out. Refused jobs are left out, too; their own answers say why."""
    for number, setup in enumerate(setups):
        if setup.machine.is_healthy and setup.job.order is None:
            with suppress(InputError):
                yield number, (setup.program, setup.machine)


def _refuse_many_ranks(setup: PlanSetup) -> None:
    """Raise `InputError` for more ranks than time and memory allow to simulate one by one."""
    ranks, plan = setup.machine.topology.gpus, setup.job.plan
    passes = ranks * 2 * plan.interleave * plan.microbatches
    limit.refuse_long("--unfold", f"{ranks:,} ranks", passes * _OF_PASS)
    limit.refuse_large("--unfold", f"{ranks:,} ranks", passes * _HELD)


@waited("the step")
def pace(setup: PlanSetup) -> "Pace":
    """The pace of a setup's step, which is played without accounts of its seconds."""
    from sim.results.likely import Pace, checkpoint_bytes, of_bounds

    plan, model = setup.job.plan, setup.job.model
    with garbage_left():
        program = setup.program
        record, facts = play(program, setup.machine), facts_of(setup, program)
    seconds = record.step_time
    sure = facts.interval(program, seconds, lambda: record)
    return Pace(
        topology=setup.machine.topology,
        seconds=seconds,
        tokens=plan.global_batch * model.tokens,
        size=checkpoint_bytes(setup.job),
        replicas=plan.data_parallel,
        inputs=inputs_of(setup),
        fits=facts.fits,
        sure=of_bounds(seconds, (sure.low, sure.expected, sure.high), sure.parts),
        watts=_watts(setup, seconds),
    )


def _watts(setup: PlanSetup, seconds: float) -> float:
    """The mean power (W) of a device over a step; a straggler's extra seconds count as waiting."""
    busy = dict.fromkeys((True, False), 0.0)
    for stage in kernels(setup):
        for kernel, each, often in stage:
            busy[isinstance(kernel, Gemm | Attention)] += each * often / setup.job.plan.pp
    return setup.job.device.drawn(multiplying=busy[True], streaming=busy[False], seconds=seconds)


def seeded(scenario: Scenario, number: int) -> Scenario | None:
    """The scenario with another seed for the hashes of its network. None if the network hashes
    nothing, or if the scenario has jitter."""
    network = load_topology(scenario).network
    if scenario.jitter is not None or network is None or not network.hashed:
        return None
    seed = scenario.first_seed + number
    return replace(scenario, change={**dict(flat(scenario.change)), "network.seed": seed})


def speeds(setup: PlanSetup, *, many: bool = True) -> "Split":
    """The step time as a function of the speeds of kernels, host, latencies and links. The columns
    of one compiled replay answer all speeds. Raises `InputError` for a step that cannot be
    replayed."""
    from sim.uncertainty.draws import by_cause, split  # compiles columns; few jobs need them

    return split(setup.machine, setup.program, by_cause)


def kernels(setup: PlanSetup) -> list[list[tuple[Kernel, float, int]]]:
    """The kernels of each stage, with the seconds of a call and the number of calls in a step."""
    job = setup.job
    passes = job.plan.microbatches
    return [
        [(kernel, job.time(kernel), often * passes) for kernel, often in stage_kernels(job, stage)]
        for stage in range(job.plan.pp)
    ]


def refuse_task(scenario: str, task: Any) -> None:
    """Raise `InputError` if a learning task is given to a scenario without workers that learn."""
    if task is not None:
        fault = "has no [sharing] table: nothing learns"
        raise InputError(scenario, fault, "leave the task out")


def refuse_choices_of_a_step(setup: str, why: str, *, engine: Engine, unfold: bool) -> None:
    """Raise `InputError` for options that apply only to a single step. `why` tells the user how the
    setup of this name is played instead."""
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
