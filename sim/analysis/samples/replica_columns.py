"""Every replica of a job as a column of one program, each stage with a slowdown of its own."""

import signal
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from sim.analysis.samples.rank_slowdowns import Floats, RankPlacement
from sim.config.errors import InputError
from sim.engine.columns.contention import clocked_contention, clocked_times, errors, spread
from sim.engine.columns.nearby import Nearby
from sim.engine.columns.program import ColumnProgram
from sim.engine.fold import Folding
from sim.engine.folded import FoldedProgram
from sim.parallel.mesh import axis_of, dividing
from sim.parallel.step import training_step
from sim.program.causes import HOST
from sim.program.operations import Collective
from sim.program.program import Program
from sim.scenario.setup import PlanSetup

Key = TypeVar("Key", int, tuple[int, int])

PROCESSES = 2  # that play columns on the clock
_TEST = 0.1  # the slowdown by which sensitivity is asked


class ReplicaColumns:
    """One program that holds every replica of a job as a column."""

    def __init__(
        self, setup: PlanSetup, folding: Folding, columns: ColumnProgram, *, contended: bool
    ) -> None:
        self.setup, self.folding, self.columns = setup, folding, columns
        self.contended = contended
        self.placement = RankPlacement.of(setup.job.plan.mesh, setup.machine.topology)
        self.replicas, self.stages = self.placement.ranks.shape[:2]
        shape = columns.shape
        classes = shape.computations
        self._stage = np.array([shape.program.roles[own.role].role.stage for own in classes])
        self._at = np.array([shape.compute_parameter(k) for k in range(len(classes))])
        moved = [
            sum(s for cause, s in own.parts if cause.kind == "communication" or cause == HOST)
            for own in classes
        ]
        self._kernels = np.array([sum(s for _, s in own.parts) for own in classes]) - moved
        self.healthy = columns.time()
        moves = zip(self._at.tolist(), self._stage.tolist(), self._kernels.tolist(), strict=True)
        self._near = Nearby(columns, {at: (stage, seconds) for at, stage, seconds in moves})

    @classmethod
    def of(cls, setup: PlanSetup) -> "ReplicaColumns":
        """Compile a job's step. Raises `InputError` where its replicas are not alike."""
        program = training_step(setup.job)
        folding = Folding(program, replace(setup.machine, slowdown={}))
        if len(folding.roles) != len(program.stages):
            fault = "a slow link or an uneven placement makes replicas unlike"
            raise InputError(f"{setup.name}, --samples", fault, "leave the slow link out")
        folded = folding.folded()
        contention = clocked_contention(folded)
        columns = ColumnProgram(
            folded,
            factors=contention.factors,
            longer=contention.longer,
            joint=_joint(program, folded),
        )
        return cls(setup, folding, columns, contended=bool(contention))

    def contended_like(self, groups: Floats) -> "ReplicaColumns":
        """The same with the mean contention of replicas with these slowdowns [runs, stages]."""
        runs = [clocked_contention(self._slowed(slowdowns)) for slowdowns in groups]
        columns = ColumnProgram(
            self.columns.shape.program,
            factors=_mean([run.factors for run in runs], usual=1.0),
            longer=_mean([run.longer for run in runs], usual=0.0),
            joint=self.columns.joint,
        )
        return ReplicaColumns(self.setup, self.folding, columns, contended=True)

    def _slowed(self, slowdowns: Floats) -> FoldedProgram:
        """The program of one replica whose stages have these factors."""
        return self.folding.folded(lambda role: float(slowdowns[role.stage]))

    def durations(self, groups: Floats) -> Floats:
        """Durations [parameters, columns] of pipelines whose stages have these factors
        [columns, stages]."""
        durations: Floats = np.repeat(self.columns.parameters[:, None], len(groups), axis=1)
        durations[self._at] += self._kernels[:, None] * (groups.T[self._stage] - 1.0)
        return durations

    def steps(self, groups: Floats) -> Floats:
        """The step time of each sample [samples, replicas, stages], replicas meeting."""
        slowest: Floats = self._times(groups, meet=True).max(axis=1)
        return slowest

    def own_steps(self, groups: Floats) -> Floats:
        """[samples, replicas]: the step of each replica if it had to wait for no other one."""
        return self._times(groups, meet=False)

    def _times(self, groups: Floats, *, meet: bool) -> Floats:
        slower = groups.reshape(-1, self.stages).T - 1.0
        times = self._near.times(slower, group=self.replicas if meet else 1)
        return times.reshape(-1, self.replicas)

    def pipelines(self, groups: Floats) -> Floats:
        """The step times of single replicas [columns, stages]."""
        return self.columns.times(self.durations(groups))

    def clock_check(self, samples: int) -> "ClockCheck":
        """Hold replicas spread over so many samples to the clock, in processes beside this one."""
        return ClockCheck(self, samples * self.replicas)

    def sensitivity(self) -> tuple[dict[str, float], ...]:
        """Seconds that the step loses if one group of a stage is a tenth slower, by stage."""
        slower = 1.0 + _TEST * np.eye(self.stages)
        lost = self.pipelines(slower) - self.healthy
        share = lost / self.healthy / _TEST
        return tuple(
            {"stage": stage, "seconds": float(lost[stage]), "share": float(share[stage])}
            for stage in range(self.stages)
        )


class ClockCheck:
    """Some of so many replicas played on the clock, in processes beside this one, as they are
    drawn; `with` ends them."""

    def __init__(self, columns: ReplicaColumns, count: int) -> None:
        self._columns, self._chosen = columns, Chosen(spread(count))
        self._pool = ProcessPoolExecutor(PROCESSES, initializer=_use, initargs=(columns.folding,))
        self._clocked: list[Future[float]] = []

    def __enter__(self) -> "ClockCheck":
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def look(self, groups: Floats) -> None:
        """The next samples [samples, replicas, stages]: play the chosen replicas among them."""
        for own in self._chosen.among(groups):
            self._clocked.append(self._pool.submit(_clocked, own))

    def errors(self) -> tuple[float, float]:
        """The mean and the worst error of replay. Raises `InexactError` where one is above 1 %."""
        replayed = self._columns.pipelines(self._chosen.columns)
        return errors(replayed, [clocked.result() for clocked in self._clocked])


class Chosen:
    """Replicas chosen beforehand by their numbers, picked out of samples as they pass."""

    def __init__(self, numbers: NDArray[np.intp]) -> None:
        self._numbers, self._passed = numbers, 0
        self._found: list[Floats] = []

    def among(self, groups: Floats) -> Floats:
        """The slowed groups among the next samples [samples, replicas, stages], as [columns,
        stages]."""
        flat = groups.reshape(-1, groups.shape[-1])
        places = self._numbers - self._passed
        found: Floats = flat[places[(places >= 0) & (places < len(flat))]]
        self._passed += len(flat)
        self._found.append(found)
        return found

    @property
    def columns(self) -> Floats:
        """All that have been found [columns, stages]."""
        return np.concatenate(self._found)


_folding: Folding  # of this process


def _use(folding: Folding) -> None:
    global _folding
    _folding = folding
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that it was started by


def _clocked(slowdowns: Floats) -> float:
    """The step time of one replica by the clock."""
    (seconds,) = clocked_times([_folding.folded(lambda role: float(slowdowns[role.stage]))])
    return seconds


def _mean(runs: Sequence[Mapping[Key, float]], *, usual: float) -> dict[Key, float]:
    """The mean of several runs."""
    keys = sorted(set().union(*runs))
    return {key: sum(run.get(key, usual) for run in runs) / len(runs) for key in keys}


def _joint(program: Program, folded: FoldedProgram) -> frozenset[int]:
    """The transfers at which replicas meet: collectives over axes that divide the batch."""
    batch = set(dividing("batch"))
    names = {
        call.name
        for stage in program.stages
        for call in stage.calls
        if isinstance(call, Collective) and batch & set(map(axis_of, call.axes))
    }
    return frozenset(
        number
        for number, transfer in enumerate(folded.transfers)
        if transfer.kind != "send" and any(transfer.name.endswith(f" {name}") for name in names)
    )
