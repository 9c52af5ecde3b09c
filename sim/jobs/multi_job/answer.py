"""The answer of a scenario with several jobs."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, field
from math import inf
from statistics import fmean
from typing import Any, ClassVar

from sim.config.dataclass import dataclass
from sim.jobs.multi_job.paces import SharedLink
from sim.results.answer import JobAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """The figures of a job. `alone` is its step time without other jobs (s), `step_time` the
    mean of its steps, with their standard deviation (`spread`), the shortest and the longest.
    `slowed_by` has the seconds that each other job adds to a step. `submitted`, `begun` and `ended`
    are moments (s); the last two are None if the job has not begun or ended. Its `faults` cost it
    the steps of `lost` seconds. It has written `checkpoints` checkpoints. Each took
    `checkpoint_time` on average until it was in storage, and takes `checkpoint_alone` without
    other jobs (s). Training stopped for `stopped` seconds to write checkpoints and to read them
    back. Slow GPUs make a step alone longer by `straggler_seconds`."""

    name: str
    scenario: str
    gpus: int
    nodes: str
    submitted: float
    begun: float | None = None
    ended: float | None = None
    steps: float = 0.0
    alone: float | None = None
    step_time: float | None = None
    spread: float = 0.0
    shortest: float | None = None
    longest: float | None = None
    offset: float = 0.0
    slowed_by: dict[str, float] = field(default_factory=dict)
    fits: bool | None = True
    faults: int = 0
    lost: float = 0.0
    checkpoints: int = 0
    checkpoint_time: float | None = None
    checkpoint_alone: float | None = None
    stopped: float = 0.0
    straggler_seconds: float = 0.0

    @property
    def slowdown(self) -> float | None:
        """The ratio of the job's step time to its step time without other jobs."""
        return self.step_time / self.alone if self.step_time and self.alone else None

    @property
    def waited(self) -> float | None:
        """Seconds from the job's submission to its first step."""
        return None if self.begun is None else self.begun - self.submitted


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiJobAnswer(JobAnswer):
    """Jobs that share a cluster.

    `fairness` is Jain's index of the jobs' relative speeds, (sum x)^2 / (n sum x^2) with x = step
    alone / step; it is 1 if all jobs lose alike. `links` are the links on which jobs met last.
    `makespan` is the moment at which the last job has ended (s), None if some job never ends. Until
    the makespan, or the horizon, `utilisation` is the share of GPU-seconds in use. `fragmentation`
    is the share that was idle while a job waited. Both are None if jobs begin at once and never
    end. If offsets between the jobs' steps were searched, `gained` is the part of the sum of
    slowdowns that they save. `straggler_seconds` is the sum over the jobs.
    """

    view = "sim.interface.views.multi_job"
    picture = "sim.interface.plots.multi_job"
    comparison = "sim.analysis.comparison.figures:FigureComparison"
    units: ClassVar[Mapping[str, str]] = {
        **{"makespan": "s", "step_time": "s", "utilisation": "%", "fragmentation": "%"}
    }
    unwritten = ("timeline",)
    frame_rows = "rows"

    jobs: tuple[JobRow, ...]
    links: tuple[SharedLink, ...]
    fairness: float | None
    slowdown: float | None
    makespan: float | None
    utilisation: float | None
    fragmentation: float | None
    waiting: dict[str, float]
    gained: float | None = None

    @property
    def columns(self) -> dict[str, Any]:
        """The figures of the cluster, and each job's step."""
        names = ("slowdown", "fairness", "makespan", "utilisation", "fragmentation")
        figures: dict[str, Any] = {name: getattr(self, name) for name in names}
        return figures | {f"step_time.{job.name}": job.step_time for job in self.jobs}

    @property
    def cost(self) -> tuple[str, float]:
        """The cost by which clusters are ranked, and its description. It is the time until the last
        job has ended (s), or the mean step of jobs that never end."""
        if self.makespan is not None:
            return "until the last job has ended", self.makespan
        steps = self.account[1].values()
        return "a step, on average over the jobs", fmean(steps) if steps else inf

    @property
    def account(self) -> tuple[str, dict[str, float]]:
        steps = {job.name: job.step_time for job in self.jobs if job.step_time is not None}
        return "A step of each job", steps

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each job."""
        return [asdict(job) | {"slowdown": job.slowdown} for job in self.jobs]

    @property
    def misfit(self) -> str:
        names = [job.name for job in self.jobs if job.fits is False]
        return f"{names[0]} needs more memory than its GPUs have" if names else ""


def jain(shares: Sequence[float]) -> float | None:
    """Jain's index of fairness of n shares: 1 if all are equal, 1/n if all but one are 0.

    >>> jain([1.0, 1.0]), jain([1.0, 0.0]), jain([])
    (1.0, 0.5, None)
    """
    squares = len(shares) * sum(share * share for share in shares)
    return sum(shares) ** 2 / squares if squares else None
