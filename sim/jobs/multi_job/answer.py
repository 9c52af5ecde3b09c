"""The answer of a scenario with several jobs."""

from collections.abc import Sequence
from dataclasses import asdict, field
from typing import TYPE_CHECKING, Any

from sim.config.dataclass import dataclass
from sim.jobs.multi_job.paces import SharedLink
from sim.results.answer import JobAnswer

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """A job beside the others: `alone` is a step on its GPUs with nobody else (s), `step_time` the
    mean of its steps, with their standard deviation (`spread`), the shortest and the longest;
    `slowed_by` are the seconds of a step that each other job costs it. `submitted`, `begun` and
    `ended` are moments (s), the last two None where it has not. By `faults` it has lost the steps
    of `lost` seconds. It has written so many `checkpoints`; from its beginning until it was in
    storage took `checkpoint_time` in the mean, where nobody else is `checkpoint_alone` (s). For
    them, and to read them back, training stopped for `stopped` seconds. A step alone takes
    `straggler_seconds` longer than with nothing slow."""

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
        """Its step over its step alone."""
        return self.step_time / self.alone if self.step_time and self.alone else None

    @property
    def waited(self) -> float | None:
        """Seconds from its submission to its first step."""
        return None if self.begun is None else self.begun - self.submitted


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiJobAnswer(JobAnswer):
    """Jobs that share a cluster.

    `fairness` is Jain's index of the jobs' relative speeds, (sum x)^2 / (n sum x^2) with x = step
    alone / step (1 where all lose alike). `links` are those on which jobs met others last.
    `makespan` is the moment at which the last job has ended (s), None where some never end;
    `utilisation` the share of GPU-seconds in use until then or until the horizon, `fragmentation`
    the share that was idle while a job waited, both None where jobs begin at once and never end.
    `gained` is what offsets between the jobs' steps save of the sum of their slowdowns, where they
    were looked for. `straggler_seconds` is the sum of the jobs'.
    """

    view = "sim.interface.views.multi_job"
    picture = "sim.interface.plots.multi_job"
    report = "sim.interface.page.answer"
    unwritten = ("timeline",)

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

    def to_frame(self) -> "pd.DataFrame":
        """One row a job."""
        import pandas as pd

        return pd.DataFrame([asdict(job) | {"slowdown": job.slowdown} for job in self.jobs])

    @property
    def misfit(self) -> str:
        names = [job.name for job in self.jobs if job.fits is False]
        return f"{names[0]} needs more memory than its GPUs have" if names else ""


def jain(shares: Sequence[float]) -> float | None:
    """Jain's index of fairness: 1 where all shares are equal, 1/n where one has all.

    >>> jain([1.0, 1.0]), jain([1.0, 0.0]), jain([])
    (1.0, 0.5, None)
    """
    squares = len(shares) * sum(share * share for share in shares)
    return sum(shares) ** 2 / squares if squares else None
