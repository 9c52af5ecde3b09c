"""A scenario with `[[job]]` tables: jobs on one cluster."""

from dataclasses import field
from typing import Annotated, Any, ClassVar, Literal

from sim.config.checked import Checked
from sim.config.dataclass import dataclass
from sim.config.units import Ge, Gt, PositiveSeconds, Seconds
from sim.hardware.cluster.topology import Topology
from sim.scenario.scenario import BaseScenario, named_columns

Places = Literal["packed", "spread", "random"]
Policy = Literal["none", "fifo", "backfill", "packed"]
Natural = Annotated[int, Ge(0)]
Count = Annotated[int, Ge(1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTable(Checked):
    """A job of the cluster: a `scenario` (a name, a path or its tables) with the values of `set`.
    Answers call the job `name`, by default its scenario's name; equal names get numbers.

    Tables without a topology, and recordings, run on the cluster. The job has the GPUs of the named
    `nodes`, the named `gpus` of one node, or nodes that `place` finds. It is submitted at `start`
    and `copies - 1` further times: at the same moment, or after intervals with the mean `every`
    (exponential). It ends after `steps` steps, or never. The copies' numbers of steps vary by a
    lognormal law with `sigma`.
    """

    scenario: str | dict[str, Any]
    name: str = ""
    set: dict[str, Any] = field(default_factory=dict)
    nodes: tuple[Natural, ...] = ()
    gpus: tuple[Natural, ...] = ()
    place: Places | None = None
    start: Seconds = 0.0
    copies: Count = 1
    every: PositiveSeconds | None = None
    steps: Count | None = None
    sigma: Annotated[float, Ge(0)] = 0.0

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        fixed = bool(self.nodes) + bool(self.gpus) + (self.place is not None)
        if fixed > 1:
            raise ValueError("name nodes, or gpus of one node, or place, but not several")
        if self.copies > 1 and (self.nodes or self.gpus):
            raise ValueError("copies cannot have the same GPUs: write a [[job]] each, or use place")
        if self.every is not None and self.steps is None:
            raise ValueError("jobs that arrive again and again (every) have to end: give steps")
        if self.sigma and self.steps is None:
            raise ValueError("sigma is the spread of steps: give steps")

    def named(self, cluster: Topology) -> int:
        """The number of GPUs that the job names; 0 if it names no GPUs."""
        return len(self.gpus) or len(self.nodes) * cluster.gpus_per_node


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultTable(Checked):
    """Faults that stop jobs. Each GPU fails after intervals with the mean `every` (exponential).

    All jobs on the GPU's node stop and lose their steps since the last checkpoint. A checkpoint is
    written each time a job has trained for `checkpoint`. Stopped jobs go to the head of the queue
    for GPUs, and then take `restart` until they train again. The node is out of service for
    `repair`.
    """

    every: PositiveSeconds
    checkpoint: PositiveSeconds = 3600.0
    restart: Seconds = 600.0
    repair: Seconds = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiJobScenario(BaseScenario):
    """Jobs that share a cluster of `gpus` GPUs.

    `place` says which nodes a job gets that names none: "packed" takes as few pods as possible,
    "spread" all pods evenly, "random" draws with `seed`. With `policy` "none" a job without room
    is refused; with all other policies it waits. With "fifo" jobs begin in the order of submission;
    with "backfill" other jobs may pass a waiting job; with "packed" a job also waits until it fits
    on as few pods as its size needs. `faults` stop jobs, and need a horizon. Jobs that meet are
    played together for `steady` steps, from which their paces follow. With `offset = "best"` jobs
    begin their steps when they disturb one another least. Jobs that arrive at random (`every`), or
    write checkpoints, meet in unknown phases, so their paces are means over all phases. The
    simulation ends at `horizon`, or when all jobs with `steps` have ended.
    """

    kind: ClassVar[str] = "sim.jobs.multi_job.kind"

    job: tuple[JobTable, ...]
    place: Places = "packed"
    policy: Policy = "none"
    offset: Literal["given", "best"] = "given"
    steady: Annotated[int, Ge(4)] = 12
    seed: Natural = 0
    horizon: Annotated[PositiveSeconds, Gt(0)] | None = None
    faults: FaultTable | None = None

    def __post_init__(self) -> None:
        BaseScenario.__post_init__(self)
        if not self.job:
            raise ValueError("no [[job]] runs on the cluster; name at least one")
        if self.faults is not None and self.horizon is None:
            raise ValueError("faults go on forever: set a horizon")
        places = {self.place, *(table.place for table in self.job)} - {"packed", None}
        if self.policy == "packed" and places:
            raise ValueError('policy = "packed" places jobs itself: leave place out')
        for key in ("model", "stack", "tokens", "checkpoints", "loader", "jitter"):
            if getattr(self, key):
                raise ValueError(f"{key} is each job's own: write it under [[job]], set")

    @property
    def first_seed(self) -> int:
        return self.seed

    @property
    def columns(self) -> dict[str, Any]:
        return named_columns(self) | {"jobs": sum(job.copies for job in self.job)}
