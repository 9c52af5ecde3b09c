"""Jobs come, wait for room, run at the pace that their company allows, and leave.

Between two such moments the jobs on the cluster are the same, and each has a steady pace
(`paces`); it does time / pace steps. A job keeps its phase within a step where its company changes.
"""

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from math import inf

from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.progress import polled
from sim.jobs.multi_job.paces import Company, Pace, Paces
from sim.jobs.multi_job.placed import Place
from sim.jobs.multi_job.placement import Occupancy, OccupiedError
from sim.jobs.multi_job.setup import MultiJobSetup, Placed, Template, placed
from sim.variability.laws import generator


@dataclass(slots=True, kw_only=True, eq=False)
class Visit:
    """A copy of a job on the cluster: when it was submitted, began and ended (s; None where it did
    not), the `steps` that it has of those `wanted`, its pace and its company at the last.

    It has `trained` for so many seconds and `did` so many steps, those that were lost included;
    `since` it began or a fault stopped it last it trained so long. `pause` seconds are left until
    it trains; the last checkpoint has `saved` its steps, and `faults` have lost it `lost` seconds.
    """

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
    did: float = 0.0
    trained: float = 0.0
    since: float = 0.0
    saved: float = 0.0
    pause: float = 0.0
    lost: float = 0.0
    faults: int = 0

    @property
    def left(self) -> float:
        """Seconds to its end at its pace."""
        return self.pause + (self.wanted - self.steps) * self.pace.mean if self.pace else inf

    def go_on(self, passed: float, checkpoint: float) -> None:
        """Train for so many seconds, with a checkpoint after so many each."""
        assert self.pace is not None, "it runs"
        paused = min(passed, self.pause)
        trained = passed - paused
        self.pause -= paused
        self.steps, self.did = (n + trained / self.pace.mean for n in (self.steps, self.did))
        self.trained, self.since = self.trained + trained, self.since + trained
        beyond = self.since % checkpoint
        if beyond <= trained:
            self.saved = self.steps - beyond / self.pace.mean

    def stop(self, restart: float) -> None:
        """A fault: it falls back to its last checkpoint."""
        assert self.pace is not None, "it runs"
        self.faults += 1
        self.lost += (self.steps - self.saved) * self.pace.mean
        self.steps, self.since, self.pause = self.saved, 0.0, restart
        self.job = self.company = None

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


class Faults:
    """The moments at which GPUs fail, and those at which nodes are repaired."""

    def __init__(self, setup: MultiJobSetup) -> None:
        self.table, self._rng = setup.scenario.faults, generator(setup.scenario.seed, "faults")
        self._gpus = setup.machine.topology.gpus
        self.moment = self._after(0.0)
        self.repairs: list[tuple[float, int]] = []

    @property
    def next(self) -> float:
        """When a GPU fails or a node is repaired next."""
        return min(self.moment, self.repairs[0][0] if self.repairs else inf)

    def draw(self) -> int:
        """The GPU that fails now."""
        self.moment = self._after(self.moment)
        return int(self._rng.integers(self._gpus))

    def _after(self, moment: float) -> float:
        if self.table is None:
            return inf
        return moment + float(self._rng.exponential(self.table.every / self._gpus))


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
        self.faults = Faults(setup)
        self.waiting: list[Visit] = []
        self.running: list[Visit] = []
        self.now = self.used = self.stranded = 0.0

    def course(self) -> Course:
        """Let all jobs come and go. Raises `InputError` where a job finds no room."""
        visits = sorted(_visits(self.setup), key=lambda visit: visit.submitted)
        horizon, coming, events = self.scenario.horizon or inf, list(reversed(visits)), 0
        changed = True
        with polled(lambda: float(len(visits) - len(coming)), total=len(visits), unit="job"):
            while self.now < horizon:
                while coming and coming[-1].submitted <= self.now:
                    self.waiting.append(coming.pop())
                if self._admit() or changed:
                    self._meet()
                arrival = coming[-1].submitted if coming else inf
                ends = (self.now + visit.left for visit in self.running)
                until = min([arrival, horizon, self.faults.next, *ends])
                if until == inf:
                    break
                changed = self._pass(until)
                changed |= self._fail_and_repair()
                events += 1
        self._refuse_waiting(horizon)
        return Course(
            visits=tuple(visits), end=self.now, used=self.used, stranded=self.stranded,
            events=events, paces=self.paces,
        )  # fmt: skip

    def _admit(self) -> bool:
        """Let jobs begin that find room; whether any did. In a queue nobody passes the first."""
        began, refused = False, set[int]()
        for visit in list(self.waiting):
            place = None if visit.template.number in refused else self._place(visit)
            if place is None:
                refused.add(visit.template.number)
                if self.scenario.policy == "fifo":
                    break
                continue
            self.waiting.remove(visit)
            self.occupancy.take(place)
            visit.job = placed(visit.template, visit.name, place, self.setup.machine)
            visit.begun = self.now if visit.begun is None else visit.begun
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
            try:
                return self.occupancy.named(table, gpus, where)
            except OccupiedError:
                if self.scenario.faults is None:
                    raise
                return None  # it waits for its own nodes
        place = self.occupancy.find(gpus, table.place or self.scenario.place, self.rng)
        if place and self.scenario.policy == "packed" and self.occupancy.scattered(place):
            return None
        if place is None and self.scenario.policy == "none" and self.scenario.faults is None:
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

    def _pass(self, until: float) -> bool:
        """Let time pass; jobs that have done their steps leave. Whether any did."""
        passed, self.now = until - self.now, until
        table = self.scenario.faults
        self.used += passed * sum(visit.template.gpus for visit in self.running)
        self.stranded += passed * self.occupancy.idle * bool(self.waiting)
        done = []
        for visit in self.running:
            assert visit.pace is not None, "it runs"
            visit.go_on(passed, table.checkpoint if table else inf)
            if visit.left <= 1e-9 * visit.pace.mean:
                visit.steps, visit.ended = visit.wanted, self.now
                done.append(visit)
        self._leave(done)
        return bool(done)

    def _leave(self, visits: Sequence[Visit]) -> None:
        for visit in visits:
            assert visit.job is not None, "it runs"
            self.running.remove(visit)
            self.occupancy.leave(visit.job.place)

    def _fail_and_repair(self) -> bool:
        """The faults and repairs of this moment; whether any job was stopped."""
        faults, table, hit = self.faults, self.scenario.faults, list[Visit]()
        while faults.repairs and faults.repairs[0][0] <= self.now:
            self.occupancy.repair(heappop(faults.repairs)[1])
        if table is None or faults.moment > self.now:
            return False
        node = self.occupancy.cluster.node_of(faults.draw())
        if not self.occupancy.in_service(node):
            return False
        hit = [visit for visit in self.running if visit.job and node in visit.job.place.nodes]
        self._leave(hit)
        for visit in hit:
            visit.stop(table.restart)
        self.waiting[:0] = hit
        self.occupancy.fail(node)
        heappush(faults.repairs, (self.now + table.repair, node))
        return bool(hit)

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
