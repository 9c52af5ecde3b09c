"""Straggler samples of any program, played on the clock. No replay covers the ways in which the
program's streams may wait for one another.

If all ranks are alike (one stage, equal links), a step takes as long as if all ranks were as slow
as the slowest rank. Every rank runs the same operations, so the slowest rank waits only for
transfers. The step is no shorter than the slowest rank's own step. It is no longer than the step of
ranks that are all like the slowest, since all times grow with the slowdowns. So one rank is played
for any number of ranks. The result is inexact only if a transfer shares links with transfers of
ranks that are out of step. Stages are not alike, so with several stages every rank is played.
"""

import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from sim import kind
from sim.analysis.samples.answer import Samples
from sim.analysis.samples.losses import REMOVED, assumed, by_cause, removed
from sim.analysis.samples.rank_slowdowns import Draws, Floats, RankPlacement
from sim.config import limit
from sim.config.counting import metered
from sim.config.dataclass import dataclass
from sim.config.stopping import so_far
from sim.engine.clock import end_of, perform
from sim.engine.fold import Folding
from sim.engine.machine import Machine
from sim.engine.timeline import Role
from sim.kind import Setup
from sim.program.program import Program
from sim.variability.laws import Jitter

_CLOSER = 16  # steps that are played again without each cause, and with nodes replaced


@dataclass(frozen=True, slots=True, eq=False)
class ClockedSteps:
    """Steps of a program whose ranks differ. `folding` has one role, or one role for each rank."""

    folding: Folding

    @classmethod
    def of(cls, program: Program, machine: Machine, *, unfold: bool = False) -> "ClockedSteps":
        return cls(Folding(program, machine, unfold=unfold))

    @property
    def roles(self) -> int:
        return len(self.folding.roles)

    def step(self, slowdown: Floats) -> float:
        """Return the seconds of a step with the slowdowns of all ranks."""
        slowest = float(slowdown.max())

        def slower(role: Role) -> float:
            return slowest if self.roles == 1 else float(slowdown[role.first_rank])

        _, _, processes = perform(self.folding.folded(slower))
        return end_of(processes)

    def steps(self, slowdowns: Floats) -> Floats:
        """Return the seconds of many steps with slowdowns [steps, ranks]."""
        return np.array([self.step(slowdown) for slowdown in slowdowns])


def samples(setup: Setup, jitter: Jitter, count: int) -> Samples:
    """Draw `count` steps of a program. Raises `InputError`."""
    began = time.perf_counter()
    machine, usual = setup.machine, replace(setup.machine, slowdown={})
    result, program = kind.answer(setup), setup.program
    placement = RankPlacement.of(program.mesh, machine.topology)
    draws = Draws(jitter=jitter, placement=placement, steps=count, slowdown=machine.slowdown)
    folded = ClockedSteps.of(program, usual)
    ranks = len(placement.node)
    even = np.ones(ranks)
    started = time.perf_counter()
    healthy = folded.step(even)
    each = time.perf_counter() - started
    if folded.roles > 1:
        each *= ranks / folded.roles
    looks = len(REMOVED) + len(jitter.causes) + bool(machine.slowdown)
    played = count + min(count, _CLOSER) * looks
    limit.refuse_long("--samples", f"{count:,} steps of {ranks:,} GPUs", played * each)
    apart = folded if folded.roles == 1 else ClockedSteps.of(program, usual, unfold=True)
    times, slowdown = _drawn(apart, draws)
    close = min(len(times), _CLOSER)
    closer, first = draws.first(close), times[:close]
    slower = folded.step(slowdown.mean() * even) - healthy
    return Samples(
        scenario=setup.name,
        inputs=result.inputs,
        samples=len(times),
        seed=jitter.seed,
        ranks=ranks,
        healthy=healthy,
        step_times=times,
        by_meeting={
            "ranks slower in the mean": slower,
            "slowest rank where they meet": float(times.mean()) - healthy - slower,
        },
        by_cause=by_cause(apart.steps, closer, first, healthy),
        sensitivity=(),
        removed=removed(apart.steps, placement, slowdown, closer, first),
        owed=np.zeros((0, 0)),
        closer=close,
        contended=False,
        mean_error=0.0,
        worst_error=0.0,
        fits=result.fits,
        notes=(*assumed(jitter), *result.warnings),
        wall_seconds=time.perf_counter() - began,
    )


def _drawn(steps: ClockedSteps, draws: Draws) -> tuple[Floats, Floats]:
    """Return the seconds of all steps, and the mean slowdown of every rank."""
    times, slowdown = list[float](), np.zeros(len(draws.placement.node))
    with metered(draws.steps, unit="step") as more:
        for factors, seconds in so_far(_played(steps, draws)):
            times.append(seconds)
            slowdown += factors
            more(1)
    return np.array(times), slowdown / len(times)


def _played(steps: ClockedSteps, draws: Draws) -> Iterator[tuple[Floats, float]]:
    for block in draws.blocks():
        for factors in block.total:
            yield factors, steps.step(factors)
