"""Questions about a step that a plan lays out, beyond its answer (`sim.questions`)."""

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sim.config.errors import InputError
from sim.config.progress import waited
from sim.engine.machine import Machine
from sim.engine.play import play
from sim.model.kernels import Attention, Gemm, Kernel
from sim.parallel.job import stage_kernels
from sim.program.program import Program
from sim.results.answer import Figures
from sim.results.assemble import StepFacts, facts_of, inputs_of
from sim.results.result import misfit_of
from sim.results.runs import of_runs
from sim.scenario.scenario import Scenario
from sim.scenario.settings import flat
from sim.scenario.setup import PlanSetup, load_topology
from sim.simulate import garbage_left

if TYPE_CHECKING:
    from sim.results.likely import Pace
    from sim.uncertainty.draws import Split


def together(setups: Sequence[PlanSetup]) -> dict[int, Figures]:
    """Return the figures of the setups whose steps can be played without a clock, by their places
    in `setups`. Steps of equal structure are played together."""
    from sim.engine.replay.together import runs  # only needed for several steps

    began = time.perf_counter()
    found: dict[int, Figures] = {}
    facts: dict[Any, StepFacts] = {}
    with garbage_left():
        steps = dict(_steps(setups))
        numbers = list(steps)
        for members, played in runs([*steps.values()]):
            chosen = [numbers[member] for member in members]
            asked = [setups[n] for n in chosen], [steps[n][0] for n in chosen]
            rows = of_runs(played, *asked, facts)
            found |= {
                number: Figures(row, misfit_of(row["fits"], row["memory.total"], row["capacity"]))
                for number, row in zip(chosen, rows, strict=True)
            }
    wall = (time.perf_counter() - began) / max(len(found), 1)
    return {number: replace(figures, wall_seconds=wall) for number, figures in found.items()}


def _steps(setups: Sequence[PlanSetup]) -> Iterator[tuple[int, tuple[Program, Machine]]]:
    """Yield number, program and machine of each setup. Setups with slow parts or a searched order
    are left out. Refused jobs are left out, too; their own answers say why."""
    for number, setup in enumerate(setups):
        if setup.machine.is_healthy and setup.job.order is None:
            with suppress(InputError):
                yield number, (setup.program, setup.machine)


@waited("the step")
def pace(setup: PlanSetup) -> "Pace":
    """Return the pace of a setup's step, which is played without accounts of its seconds."""
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
    """Return the scenario with another seed for the hashes of its network. None if the network
    hashes nothing, or if the scenario has jitter."""
    network = load_topology(scenario).network
    if scenario.jitter is not None or network is None or not network.hashed:
        return None
    seed = scenario.first_seed + number
    return replace(scenario, change={**dict(flat(scenario.change)), "network.seed": seed})


def speeds(setup: PlanSetup, *, many: bool = True) -> "Split":
    """Return the step time as a function of the speeds of kernels, host, latencies and links. One
    compiled replay computes the times for all factors. Raises `InputError` for a step that cannot
    be replayed."""
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
