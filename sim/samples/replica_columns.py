"""Every replica of a job as a column of one replay, each stage with a slowdown of its own."""

from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import numpy as np

from sim.config.errors import InputError
from sim.engine.fold import fold
from sim.engine.folded import Score
from sim.engine.replay import Replay, with_parameters
from sim.engine.replay_contention import clocked_factors, clocked_times, errors, spread
from sim.engine.replay_nearby import Nearby
from sim.parallel.step import training_step
from sim.program import Collective, Communicate, Program
from sim.samples.rank_slowdowns import Floats, RankPlacement
from sim.scenario.setup import Setup

PROCESSES, _BATCH = 2, 4  # that play columns on the clock, and how many at a time
_TEST = 0.1  # the slowdown by which sensitivity is asked


class ReplicaColumns:
    """One replay that holds every replica of a job as a column."""

    def __init__(self, setup: Setup, score: Score, replay: Replay, *, contended: bool) -> None:
        self.setup, self.replay, self.contended = setup, replay, contended
        self.placement = RankPlacement.of(setup.job.plan, setup.machine.topology)
        self.replicas, self.stages = self.placement.ranks.shape[:2]
        classes = replay.shape.passes
        self._stage = np.array([score.parts[pass_.part].role.stage for pass_ in classes])
        self._at = np.array([replay.shape.pass_parameter(k) for k in range(len(classes))])
        moved = [
            sum(s for cause, s in pass_.parts if cause.endswith("communication"))
            for pass_ in classes
        ]
        self._kernels = np.array([pass_.device for pass_ in classes]) - moved
        self.healthy = replay.time()
        moves = zip(self._at.tolist(), self._stage.tolist(), self._kernels.tolist(), strict=True)
        self._near = Nearby(replay, {at: (stage, seconds) for at, stage, seconds in moves})

    @classmethod
    def of(cls, setup: Setup) -> "ReplicaColumns":
        """Compile a job's step. Raises `InputError` where its replicas are not alike."""
        program = training_step(setup.job)
        machine = replace(setup.machine, slowdown={})
        score = fold(program, machine)
        if len(score.parts) != len(program.stages):
            what = "a slow link or an uneven placement makes replicas unlike"
            raise InputError(f"{setup.name}, --samples", what, "leave the slow link out")
        factors = clocked_factors(score)
        return cls(setup, score, Replay(score, factors=factors, joint=_joint(program, score)),
                   contended=bool(factors))  # fmt: skip

    def contended_like(self, groups: Floats) -> "ReplicaColumns":
        """The same with the mean contention of replicas with these slowdowns [runs, stages]."""
        shape, columns = self.replay.shape, self.durations(groups)
        runs = [
            clocked_factors(with_parameters(shape.score, shape, columns[:, run]))
            for run in range(len(groups))
        ]
        numbers = sorted(set().union(*runs))
        mean = {n: sum(run.get(n, 1.0) for run in runs) / len(runs) for n in numbers}
        replay = Replay(shape.score, factors=mean, joint=self.replay.joint)
        return ReplicaColumns(self.setup, shape.score, replay, contended=True)

    def durations(self, groups: Floats) -> Floats:
        """Durations [parameters, columns] of pipelines whose stages have these factors
        [columns, stages]."""
        durations: Floats = np.repeat(self.replay.parameters[:, None], len(groups), axis=1)
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
        return self.replay.times(self.durations(groups))

    def clock_check(self, groups: Floats) -> "ClockCheck":
        """Hold replicas spread over all samples to the clock, in a process beside this one."""
        flat = groups.reshape(-1, self.stages)
        return ClockCheck(self.replay, self.durations(flat[spread(len(flat))]))

    def sensitivity(self) -> tuple[dict[str, float], ...]:
        """What one group of each stage, a tenth slower, costs the step."""
        slower = 1.0 + _TEST * np.eye(self.stages)
        lost = self.pipelines(slower) - self.healthy
        share = lost / self.healthy / _TEST
        return tuple(
            {"stage": stage, "seconds": float(lost[stage]), "share": float(share[stage])}
            for stage in range(self.stages)
        )


class ClockCheck:
    """Columns played on the clock, in processes beside this one; `with` ends them."""

    def __init__(self, replay: Replay, columns: Floats) -> None:
        self._replayed = replay.times(columns)
        self._pool = ProcessPoolExecutor(max_workers=PROCESSES)
        self._clocked = [
            self._pool.submit(clocked_times, replay.shape, columns[:, first : first + _BATCH])
            for first in range(0, columns.shape[1], _BATCH)
        ]

    def __enter__(self) -> "ClockCheck":
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def errors(self) -> tuple[float, float]:
        """The mean and the worst error of replay. Raises `InexactError` where one is above 1 %."""
        clocked = [seconds for batch in self._clocked for seconds in batch.result()]
        return errors(self._replayed, clocked)


def _joint(program: Program, score: Score) -> frozenset[int]:
    """The transfers at which replicas meet: those of collectives along the data axis."""
    shared: set[str] = set()
    inner: set[str] = set()
    for operation in (operation for stage in program.stages for operation in stage):
        if isinstance(operation, Communicate):
            calls, names = operation.calls, shared
        else:
            calls, names = tuple(operation.work.collectives()), inner
        names |= {c.name for c in calls if isinstance(c, Collective) and "dp" in c.axes}
    return frozenset(
        number
        for number, transfer in enumerate(score.transfers)
        if transfer.kind != "send"
        and (transfer.name in shared or any(transfer.name.endswith(f" {name}") for name in inner))
    )
