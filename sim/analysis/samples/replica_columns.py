"""The replicas of a job as columns of one program, with a separate slowdown for each stage."""

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

PROCESSES = 2  # processes that play columns on the clock
_TEST = 0.1  # a step's sensitivity to a group is the effect of this slowdown of the group


class ReplicaColumns:
    """A compiled program of a job's step that has a column for every replica."""

    def __init__(
        self, setup: PlanSetup, folding: Folding, columns: ColumnProgram, *, contended: bool
    ) -> None:
        self.setup, self.folding, self.columns = setup, folding, columns
        self.contended = contended
        self.placement = RankPlacement.of(setup.job.plan.mesh, setup.machine.topology)
        self.replicas, self.stages = self.placement.ranks.shape[:2]
        shape = columns.shape
        classes = shape.computations
        self._stage = np.array([shape.program.roles[kind.role].role.stage for kind in classes])
        self._at = np.array([shape.compute_parameter(k) for k in range(len(classes))])
        moved = [
            sum(s for cause, s in kind.parts if cause.kind == "communication" or cause == HOST)
            for kind in classes
        ]
        self._kernels = np.array([sum(s for _, s in kind.parts) for kind in classes]) - moved
        self.healthy = columns.time()
        moves = zip(self._at.tolist(), self._stage.tolist(), self._kernels.tolist(), strict=True)
        self._near = Nearby(columns, {at: (stage, seconds) for at, stage, seconds in moves})

    @classmethod
    def of(cls, setup: PlanSetup) -> "ReplicaColumns":
        """Compile a job's step. Raises `InputError` where its replicas are not alike."""
        program = training_step(setup.job)
        folding = Folding(program, replace(setup.machine, slowdown={}))
        if len(folding.roles) != len(program.stages):
            fault = "a slow link or an uneven placement makes replicas differ"
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
        """Return columns with the mean contention of replicas whose stages have the slowdowns
        `groups` [runs, stages]."""
        runs = [clocked_contention(self._slowed(slowdowns)) for slowdowns in groups]
        columns = ColumnProgram(
            self.columns.shape.program,
            factors=_mean([run.factors for run in runs], usual=1.0),
            longer=_mean([run.longer for run in runs], usual=0.0),
            joint=self.columns.joint,
        )
        return ReplicaColumns(self.setup, self.folding, columns, contended=True)

    def _slowed(self, slowdowns: Floats) -> FoldedProgram:
        """Return the program of a replica whose stages have these slowdowns."""
        return self.folding.folded(lambda role: float(slowdowns[role.stage]))

    def durations(self, groups: Floats) -> Floats:
        """Return durations [parameters, columns] of pipelines whose stages have the slowdowns
        `groups` [columns, stages]."""
        durations: Floats = np.repeat(self.columns.parameters[:, None], len(groups), axis=1)
        durations[self._at] += self._kernels[:, None] * (groups.T[self._stage] - 1.0)
        return durations

    def steps(self, groups: Floats) -> Floats:
        """Return the step times of samples [samples, replicas, stages] whose replicas meet."""
        slowest: Floats = self._times(groups, meet=True).max(axis=1)
        return slowest

    def own_steps(self, groups: Floats) -> Floats:
        """Return the step time of each replica as if it never waited for others [samples,
        replicas]."""
        return self._times(groups, meet=False)

    def _times(self, groups: Floats, *, meet: bool) -> Floats:
        slower = groups.reshape(-1, self.stages).T - 1.0
        times = self._near.times(slower, group=self.replicas if meet else 1)
        return times.reshape(-1, self.replicas)

    def pipelines(self, groups: Floats) -> Floats:
        """Return the step times of single replicas with slowdowns [columns, stages]."""
        return self.columns.times(self.durations(groups))

    def clock_check(self, samples: int) -> "ClockCheck":
        """Start to check some replicas of `samples` against the clock, in other processes."""
        return ClockCheck(self, samples * self.replicas)

    def sensitivity(self) -> tuple[dict[str, float], ...]:
        """Return, by stage, the seconds that the step loses if one group is a tenth slower."""
        slower = 1.0 + _TEST * np.eye(self.stages)
        lost = self.pipelines(slower) - self.healthy
        share = lost / self.healthy / _TEST
        return tuple(
            {"stage": stage, "seconds": float(lost[stage]), "share": float(share[stage])}
            for stage in range(self.stages)
        )


class ClockCheck:
    """Plays some of `count` replicas on the clock, in other processes, while samples are drawn.
    Leaving its `with` block ends the processes."""

    def __init__(self, columns: ReplicaColumns, count: int) -> None:
        self._columns, self._chosen = columns, Chosen(spread(count))
        self._pool = ProcessPoolExecutor(PROCESSES, initializer=_use, initargs=(columns.folding,))
        self._clocked: list[Future[float]] = []

    def __enter__(self) -> "ClockCheck":
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def look(self, groups: Floats) -> None:
        """Play the chosen replicas of the next samples [samples, replicas, stages]."""
        for sample in self._chosen.among(groups):
            self._clocked.append(self._pool.submit(_clocked, sample))

    def errors(self) -> tuple[float, float]:
        """Return the replay's mean and worst error. Raises `InexactError` for an error above 1
        %."""
        replayed = self._columns.pipelines(self._chosen.columns)
        return errors(replayed, [clocked.result() for clocked in self._clocked])


class Chosen:
    """Replicas with numbers chosen beforehand, picked out of blocks of samples."""

    def __init__(self, numbers: NDArray[np.intp]) -> None:
        self._numbers, self._passed = numbers, 0
        self._found: list[Floats] = []

    def among(self, groups: Floats) -> Floats:
        """Return the slowdowns of the chosen replicas in the next samples [samples, replicas,
        stages], as [columns, stages]."""
        flat = groups.reshape(-1, groups.shape[-1])
        places = self._numbers - self._passed
        found: Floats = flat[places[(places >= 0) & (places < len(flat))]]
        self._passed += len(flat)
        self._found.append(found)
        return found

    @property
    def columns(self) -> Floats:
        """The slowdowns of all replicas found so far [columns, stages]."""
        return np.concatenate(self._found)


_folding: Folding  # set once in each process of a pool


def _use(folding: Folding) -> None:
    global _folding
    _folding = folding
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles Ctrl-C


def _clocked(slowdowns: Floats) -> float:
    """Return the step time of one replica on the clock."""
    (seconds,) = clocked_times([_folding.folded(lambda role: float(slowdowns[role.stage]))])
    return seconds


def _mean(runs: Sequence[Mapping[Key, float]], *, usual: float) -> dict[Key, float]:
    """Return the mean of several runs; a missing key counts as `usual`."""
    keys = sorted(set().union(*runs))
    return {key: sum(run.get(key, usual) for run in runs) / len(runs) for key in keys}


def _joint(program: Program, folded: FoldedProgram) -> frozenset[int]:
    """Return the numbers of transfers at which replicas meet: collectives over axes of the
    batch."""
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
