"""Jobs come, wait for room, run at the pace that their company allows, and leave.

Between two such moments the jobs on the cluster are the same, and each has a steady pace
(`paces`); it does time / pace steps. A job keeps its phase within a step where its company changes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from sim.config.errors import InputError
from sim.config.progress import polled
from sim.jobs.multi_job.paces import Company, Pace, Paces
from sim.jobs.multi_job.placed import Place
from sim.jobs.multi_job.placement import Occupancy
from sim.jobs.multi_job.setup import MultiJobSetup, Placed, Template, placed
from sim.variability.laws import generator


@dataclass(slots=True, kw_only=True, eq=False)
class Visit:
    """A copy of a job on the cluster: when it was submitted, began and ended (s; None where it did
    not), the `steps` that it did of those `wanted`, its pace and its company at the last."""

    template: Template
    name: str
    submitted: float
    wanted: float = inf
    begun: float | None = None
    ended: float | None = None
    job: Placed | None = None
    steps: float = 0.0
    pace: Pace | None = None
    company: "Together | None" = None

    @property
    def left(self) -> float:
        """Seconds to its end at its pace."""
        return (self.wanted - self.steps) * self.pace.mean if self.pace else inf

    @property
    def offset(self) -> float:
        """Seconds to its next step at its pace."""
        return -self.steps % 1.0 * self.pace.mean if self.pace else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Together:
    """Visits that met on links, and how."""

    visits: tuple[Visit, ...]
    how: Company


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Course:
    """The visits in the order of submission, the `end` (s), GPU-seconds in use, and those that were
    idle while a job waited; `paces` are known of all companies."""

    visits: tuple[Visit, ...]
    end: float
    used: float
    stranded: float
    events: int
    paces: Paces


class Cluster:
    """A cluster with the jobs that run on it and wait for it."""

    def __init__(self, setup: MultiJobSetup) -> None:
        self.setup, self.scenario = setup, setup.scenario
        self.occupancy = Occupancy(setup.machine.topology)
        arrivals = any(template.table.every is not None for template in setup.templates)
        self.paces = Paces(
            self.scenario.steady, best=self.scenario.offset == "best", aligned=arrivals
        )
        self.rng = generator(self.scenario.seed, "places")
        self.waiting: list[Visit] = []
        self.running: list[Visit] = []
        self.now = self.used = self.stranded = 0.0

    def course(self) -> Course:
        """Let all jobs come and go. Raises `InputError` where a job finds no room."""
        visits = sorted(_visits(self.setup), key=lambda visit: visit.submitted)
        horizon, coming, events = self.scenario.horizon or inf, list(reversed(visits)), 0
        with polled(lambda: float(len(visits) - len(coming)), total=len(visits), unit="job"):
            while self.now < horizon:
                while coming and coming[-1].submitted <= self.now:
                    self.waiting.append(coming.pop())
                if self._admit() or events == 0 or self._left:
                    self._meet()
                arrival = coming[-1].submitted if coming else inf
                until = min([arrival, horizon, *(self.now + v.left for v in self.running)])
                if until == inf:
                    break
                self._pass(until)
                events += 1
        self._refuse_waiting(horizon)
        return Course(
            visits=tuple(visits), end=self.now, used=self.used, stranded=self.stranded,
            events=events, paces=self.paces,
        )  # fmt: skip

    _left = False  # whether a job has left since the paces were found

    def _admit(self) -> bool:
        """Let jobs begin that find room; whether any did. In a queue nobody passes the first."""
        began = False
        for visit in list(self.waiting):
            place = self._place(visit)
            if place is None:
                if self.scenario.policy == "fifo":
                    break
                continue
            self.waiting.remove(visit)
            self.occupancy.take(place)
            visit.job = placed(visit.template, visit.name, place, self.setup.machine)
            visit.begun = self.now
            self.running.append(visit)
            began = True
        return began

    def _place(self, visit: Visit) -> Place | None:
        """GPUs for a job. Raises `InputError` where it would never have any."""
        template, where = visit.template, f"{self.scenario.name}, job {visit.name}"
        table, gpus, cluster = template.table, template.gpus, self.occupancy.cluster
        if gpus > cluster.gpus:
            fault = f"takes {gpus:,} GPUs; the cluster has {cluster.gpus:,}"
            raise InputError(where, fault, f"set gpus = {gpus} or more, or a smaller job")
        if table.nodes or table.gpus:
            return self.occupancy.named(table, gpus, where)
        place = self.occupancy.find(gpus, table.place or self.scenario.place, self.rng)
        if place is None and self.scenario.policy == "none":
            fault = f"takes {gpus:,} GPUs; {self.occupancy.idle:,} of {cluster.gpus:,} are free"
            remedy = 'set gpus of the cluster, or policy = "fifo" to let jobs wait'
            raise InputError(where, fault, remedy)
        return place

    def _meet(self) -> None:
        """The paces of the jobs that run now."""
        jobs = [visit.job for visit in self.running if visit.job]
        for numbers in self.paces.groups(jobs):
            members = tuple(self.running[number] for number in numbers)
            known = members[0].company
            if known is not None and known.visits == members:
                continue  # they go on as before
            how = self.paces.company([jobs[n] for n in numbers], [v.offset for v in members])
            group = Together(members, how)
            for visit, pace in zip(members, how.paces, strict=True):
                visit.pace, visit.company = pace, group
        self._left = False

    def _pass(self, until: float) -> None:
        """Let time pass; jobs that have done their steps leave."""
        passed, self.now = until - self.now, until
        self.used += passed * sum(visit.template.gpus for visit in self.running)
        self.stranded += passed * self.occupancy.idle * bool(self.waiting)
        for visit in list(self.running):
            assert visit.pace is not None, "it runs"
            assert visit.job is not None, "it runs"
            visit.steps += passed / visit.pace.mean
            if visit.left <= 1e-9 * visit.pace.mean:
                visit.steps, visit.ended = visit.wanted, self.now
                self.running.remove(visit)
                self.occupancy.leave(visit.job.place)
                self._left = True

    def _refuse_waiting(self, horizon: float) -> None:
        if self.waiting and horizon == inf:
            where, first = self.scenario.name, self.waiting[0].name
            fault = f"{first} waits for GPUs of jobs that never end"
            raise InputError(where, fault, "give those jobs steps, or set a horizon")


def _visits(setup: MultiJobSetup) -> Iterator[Visit]:
    """Every copy of every job."""
    for template in setup.templates:
        table = template.table
        rng = generator(setup.scenario.seed, "arrivals", template.number)
        moment = table.start
        for copy in range(table.copies):
            name = template.name if table.copies == 1 else f"{template.name} {copy + 1}"
            wanted = inf if table.steps is None else float(table.steps)
            if table.sigma:
                wanted = max(round(wanted * rng.lognormal(-(table.sigma**2) / 2, table.sigma)), 1)
            yield Visit(template=template, name=name, submitted=moment, wanted=wanted)
            moment += rng.exponential(table.every) if table.every else 0.0
