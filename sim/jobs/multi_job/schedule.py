"""Jobs come, wait for room, run at the pace that their company allows, and leave.

A job's company is the set of jobs that it meets on links. Between two events each job on the
cluster has a steady pace, the seconds of a step (`paces`). In a time t it does t / pace steps, or
the share t / pace of a checkpoint. A job keeps its phase within a step when its company changes.
"""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from heapq import heappop, heappush
from math import inf

from sim.config.counting import polled
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.jobs.multi_job.paces import Company, Pace, Paces
from sim.jobs.multi_job.placed import Place
from sim.jobs.multi_job.placement import Occupancy, OccupiedError
from sim.jobs.multi_job.setup import MultiJobSetup, Placed, Template, placed
from sim.variability.laws import generator


@dataclass(slots=True, eq=False)
class Act:
    """An activity of a job (training or a checkpoint) at a pace in a company. Of training, `left`
    steps are still to do; of a checkpoint, the share `left`."""

    visit: "Visit"
    job: Placed
    left: float
    pace: Pace | None = None
    company: "Together | None" = None

    @property
    def seconds(self) -> float:
        """Seconds until the activity ends at its pace."""
        return self.visit.pause + self.left * self.pace.mean if self.pace else inf

    @property
    def offset(self) -> float:
        """Seconds until the next step, or the end of the checkpoint, at its pace."""
        if self.pace is None:
            return 0.0
        done = self.visit.steps if self is self.visit.training else -self.left
        return -done % 1.0 * self.pace.mean


@dataclass(slots=True, kw_only=True, eq=False)
class Visit:
    """A copy of a job on the cluster: when it was `submitted`, `begun` and `ended` (s; None if this
    has not happened). It has done `steps` of the steps `wanted`; `acts` are its present activities.
    It trained last at `pace` in `company`, and wrote a checkpoint last in the company `wrote_in`.

    In all it trained for `trained` seconds and `did` steps, including lost steps. `since` counts
    the seconds of training since it began or a fault stopped it last. It goes on in `pause`
    seconds. The last finished checkpoint holds `saved` steps; `faults` cost it `lost` seconds. It
    has written `checkpoints` checkpoints in `saving` seconds; training stopped for `stopped`
    seconds. The newest checkpoint holds `covered` steps and began at `saving_since`.
    """

    template: Template
    name: str
    submitted: float
    wanted: float = inf
    begun: float | None = None
    ended: float | None = None
    job: Placed | None = None
    acts: tuple[Act, ...] = ()
    steps: float = 0.0
    pace: Pace | None = None
    company: "Together | None" = None
    wrote_in: "Together | None" = None
    did: float = 0.0
    trained: float = 0.0
    since: float = 0.0
    saved: float = 0.0
    pause: float = 0.0
    lost: float = 0.0
    faults: int = 0
    checkpoints: int = 0
    saving: float = 0.0
    stopped: float = 0.0
    covered: float = 0.0
    saving_since: float = 0.0

    @property
    def training(self) -> Act | None:
        """The activity of training, if the job trains now."""
        return self.acts[0] if self.acts and not self.acts[0].job.doing else None

    def begin(self, job: Placed) -> None:
        """Begin, or begin again from the last checkpoint, which is read back."""
        self.job = job
        if self.saved and job.saves and job.saves.back:
            self.acts = (Act(self, job.at(job.saves.back), 1.0),)
        else:
            self._train()

    def go_on(self, passed: float, checkpoint: float) -> None:
        """Let `passed` seconds pass. If the job's scenario has no checkpoints, a checkpoint without
        traffic is written after every `checkpoint` seconds of training."""
        paused = min(passed, self.pause)
        on, training = passed - paused, self.training
        self.pause -= paused
        for act in self.acts:
            assert act.pace is not None, "it runs"
            act.left -= on / act.pace.mean
        if training is None:
            self.stopped += on
            return
        assert training.pace is not None, "it runs"
        pace = training.pace.mean
        self.steps, self.did = (n + on / pace for n in (self.steps, self.did))
        self.trained, self.since = self.trained + on, self.since + on
        if self.job and self.job.saves:
            return
        beyond = self.since % checkpoint
        if beyond <= on:
            self.saved = self.steps - beyond / pace

    def done(self, act: Act, now: float) -> bool:
        """End an activity and begin the next activity; return whether the visit is over."""
        assert self.job is not None, "it runs"
        saves, others = self.job.saves, tuple(other for other in self.acts if other is not act)
        if not act.job.doing:  # training, up to the next checkpoint or the end
            self.steps = float(round(self.steps))
            if self.steps >= self.wanted:
                return True
            self.acts = others  # the previous checkpoint is still being written
            if not others:
                self._save(now)
            return False
        if saves and saves.back and act.job.program is saves.back.program:
            self._train()
        elif saves and saves.beside and act.job.program is not saves.beside.program:
            self._train(Act(self, self.job.at(saves.beside), 1.0))
        else:
            self._saved(now)
            self.acts = others
            if not others and self.steps > self.covered:  # the next checkpoint is due
                self._save(now)
            elif not others:
                self._train()
        return False

    def _save(self, now: float) -> None:
        """Begin a checkpoint."""
        assert self.job is not None, "it runs"
        saves = self.job.saves
        assert saves is not None, "it has checkpoints"
        self.covered, self.saving_since = self.steps, now
        if saves.stop:
            self.acts = (Act(self, self.job.at(saves.stop), 1.0),)
        else:  # to storage with a bandwidth of its own: only a pause
            self.pause, self.stopped = self.pause + saves.pause, self.stopped + saves.pause
            self._saved(now + saves.pause)
            self._train()

    def _saved(self, now: float) -> None:
        self.saved, self.checkpoints = self.covered, self.checkpoints + 1
        self.saving += now - self.saving_since

    def _train(self, *beside: Act) -> None:
        assert self.job is not None, "it runs"
        saves = self.job.saves
        until = saves.steps - self.steps % saves.steps if saves else inf
        training = Act(self, self.job, min(self.wanted - self.steps, until))
        self.acts = (training, *beside)

    def stop(self, restart: float) -> None:
        """Let a fault stop the job, which falls back to its last checkpoint."""
        assert self.pace is not None, "it has trained"
        self.faults += 1
        self.lost += (self.steps - self.saved) * self.pace.mean
        self.steps, self.since, self.pause = self.saved, 0.0, restart
        self.job, self.company, self.acts = None, None, ()


@dataclass(frozen=True, slots=True, eq=False)
class Together:
    """Activities that met on links, and their paces and links (`how`)."""

    acts: tuple[Act, ...]
    how: Company


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Course:
    """The visits in the order of submission, and the `end` (s). GPUs were in use for `used`
    GPU-seconds, and idle while a job waited for `stranded` GPU-seconds. `paces` knows all
    companies."""

    visits: tuple[Visit, ...]
    end: float
    used: float
    stranded: float
    events: int
    paces: Paces


class Faults:
    """The moments at which GPUs fail, and at which nodes are repaired."""

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
            self.scenario.steady, best=self.scenario.offset == "best", by_and_by=arrivals
        )
        self.rng = generator(self.scenario.seed, "places")
        self.faults = Faults(setup)
        self.waiting: list[Visit] = []
        self.running: list[Visit] = []
        self.now = self.used = self.stranded = 0.0

    def course(self) -> Course:
        """Let all jobs come and go. Raises `InputError` if a job finds no room."""
        visits = sorted(_visits(self.setup), key=lambda visit: visit.submitted)
        horizon, coming, events = self.scenario.horizon or inf, list(reversed(visits)), 0
        changed = True
        later = visits[-1].submitted > 0.0  # otherwise progress counts steps
        counted = partial(polled, lambda: float(len(visits) - len(coming)), total=len(visits))
        with counted(unit="job") if later else nullcontext():
            while self.now < horizon:
                while coming and coming[-1].submitted <= self.now:
                    self.waiting.append(coming.pop())
                if self._admit() or changed:
                    self._meet()
                arrival = coming[-1].submitted if coming else inf
                ends = (self.now + act.seconds for visit in self.running for act in visit.acts)
                until = min([arrival, horizon, self.faults.next, *ends])
                if until == inf or (horizon == inf and not coming and self._endless):
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
        """Let waiting jobs begin if they find room; return whether a job began. With "fifo" no job
        passes the first job of the queue."""
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
            visit.begin(placed(visit.template, visit.name, place, self.setup.machine))
            visit.begun = self.now if visit.begun is None else visit.begun
            self.running.append(visit)
            began = True
        return began

    def _place(self, visit: Visit) -> Place | None:
        """GPUs for a job; None if the job has to wait. Raises `InputError` if waiting does not help
        or is not allowed."""
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
        """Set the paces of the jobs that run now."""
        acts = [act for visit in self.running for act in visit.acts]
        for numbers in self.paces.groups([act.job for act in acts]):
            members = tuple(acts[number] for number in numbers)
            known = members[0].company
            if known is not None and known.acts == members:
                continue  # they go on as before
            how = self.paces.company([a.job for a in members], [a.offset for a in members])
            group = Together(members, how)
            for act, pace in zip(members, how.paces, strict=True):
                act.pace, act.company, visit = pace, group, act.visit
                if act is visit.training:
                    visit.pace, visit.company = pace, group
                else:
                    visit.wrote_in = group

    @property
    def _endless(self) -> bool:
        """Whether no job ends, and jobs have written `steady` checkpoints each on average."""
        saving = [visit for visit in self.running if visit.job and visit.job.saves]
        written = sum(visit.checkpoints for visit in saving)
        endless = all(visit.wanted == inf for visit in self.running)
        return endless and written >= len(saving) * self.scenario.steady

    def _pass(self, until: float) -> bool:
        """Let time pass; activities that are done end, and jobs that have done their steps leave.
        Return whether an activity ended."""
        passed, self.now = until - self.now, until
        table = self.scenario.faults
        self.used += passed * sum(visit.template.gpus for visit in self.running)
        self.stranded += passed * self.occupancy.idle * bool(self.waiting)
        done, changed = [], False
        for visit in self.running:
            visit.go_on(passed, table.checkpoint if table else inf)
            for act in visit.acts:
                if visit.pause or (act.left > 1e-9 and self.now + act.seconds > self.now):
                    continue
                changed = True
                if visit.done(act, self.now):
                    visit.ended = self.now
                    done.append(visit)
                    break
        self._leave(done)
        return changed

    def _leave(self, visits: Sequence[Visit]) -> None:
        for visit in visits:
            assert visit.job is not None, "it runs"
            self.running.remove(visit)
            self.occupancy.leave(visit.job.place)

    def _fail_and_repair(self) -> bool:
        """Let the repairs and the fault of this moment happen; return whether a job was stopped."""
        faults, table, hit = self.faults, self.scenario.faults, list[Visit]()
        while faults.repairs and faults.repairs[0][0] <= self.now:
            self.occupancy.repair(heappop(faults.repairs)[1])
        if table is None or faults.moment > self.now:
            return False
        node = self.occupancy.cluster.node_of(faults.draw())
        if node in self.occupancy.out:
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
    """Yield every copy of every job."""
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
