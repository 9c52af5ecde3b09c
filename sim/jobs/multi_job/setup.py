"""From `[[job]]` tables to jobs that can be played; each job is set up by its own kind."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import field, replace
from functools import cached_property
from typing import Any, ClassVar

from sim import kind, questions
from sim.config import limit
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.engine.machine import Machine
from sim.engine.play import play
from sim.hardware.cluster.topology import Link, Topology
from sim.jobs.multi_job.folding import Guest
from sim.jobs.multi_job.placed import Place
from sim.jobs.multi_job.placement import Occupancy
from sim.jobs.multi_job.scenario import JobTable, MultiJobScenario
from sim.kind import WithoutProgram
from sim.parallel.checkpoint import Checkpoints, Copies
from sim.program.beside import alone
from sim.program.operations import Copy
from sim.program.program import Program
from sim.scenario.scenario import BaseScenario
from sim.scenario.settings import dotted
from sim.scenario.setup import load_topology, machine
from sim.variability.laws import generator

# Seconds of a core that the simulation takes.
_OF_COPY, _OF_WAITING = 3e-4, 2e-9  # for each copy of a job, and for each pair of copies
_OF_JOB = 0.1  # for each job
_OF_FAULT = 2e-3  # for each fault
_OF_CHECKPOINT = 3e-3  # for each checkpoint, which changes activities three times
_OF_CLUSTER = ("topology", "network", "node", "host", "storage", "device")


@dataclass(frozen=True, eq=False)
class Template:
    """A `[[job]]` table with the scenario that each copy runs on `gpus` GPUs of the cluster."""

    number: int
    table: JobTable
    scenario: BaseScenario
    gpus: int
    name: str
    _known: "dict[Any, Alone]" = field(default_factory=dict)

    def alone(self, on: Machine, pattern: Any) -> "Alone":
        """The job alone on a machine; it is played once for all machines with one `pattern`."""
        if pattern not in self._known:
            setup = replace(self.set_up(on.topology), machine=on)
            try:
                program: Program | None = setup.program
            except InputError:
                program = None  # the job's work is not a step that repeats
            saves = _saves(setup, program, self.scenario.checkpoints)
            self._known[pattern] = Alone(program, *_played(setup), saves)
        return self._known[pattern]

    def work(self, on: Machine) -> tuple[float, Mapping[Link, float]]:
        """Seconds of a unit of the job's work on a machine, and its bytes on each link."""
        return questions.traffic(replace(self.set_up(on.topology), machine=on))

    def set_up(self, topology: Topology) -> Any:
        """Set up the job on a cluster that has the job's GPUs only. Raises `InputError`."""
        gpus = None if self.scenario.layout is None else self.gpus
        return kind.set_up(replace(self.scenario, topology=topology, gpus=gpus))


@dataclass(frozen=True, slots=True, eq=False)
class Alone:
    """A job alone: the program that it repeats (None: its work does not repeat), the seconds of a
    step, the seconds that slow GPUs add to a step, and whether the job fits. `saves` are its
    checkpoints. `known` has results that all copies of the job share, by activity (training or
    `Work.doing`)."""

    program: Program | None
    seconds: float
    fits: bool | None
    straggler_seconds: float
    saves: "Saves | None"
    known: defaultdict[str, dict[Hashable, Any]] = field(default_factory=lambda: defaultdict(dict))


@dataclass(frozen=True, slots=True)
class Work:
    """Work that a job does beside training or instead of it: a program, and its seconds while no
    other job runs."""

    doing: str
    program: Program
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Saves:
    """Checkpoints: a checkpoint is written every `steps` steps. Training stops for `pause` seconds,
    or for the work `stop`; the work `beside` runs beside the next steps. `back` reads a checkpoint
    after a fault."""

    steps: int
    pause: float = 0.0
    stop: Work | None = None
    beside: Work | None = None
    back: Work | None = None

    @property
    def seconds(self) -> float:
        """Seconds from a checkpoint's beginning until it is in storage, without other jobs."""
        return self.pause + sum(work.seconds for work in (self.stop, self.beside) if work)


def _played(setup: Any) -> tuple[float, bool | None, float]:
    """Seconds of a step or a mean update, whether it fits, and the seconds that slow GPUs add."""
    if setup.job is not None and setup.machine.is_healthy:
        pace = questions.pace(setup)
        return pace.seconds, pace.fits, 0.0
    answer = kind.answer(setup)
    seconds = answer.get("step_time") or answer.get("time") / max(answer.get("updates"), 1)
    return float(seconds), answer.fits, answer.straggler_seconds


def _saves(setup: Any, program: Program | None, checkpoints: Checkpoints | None) -> Saves | None:
    """The checkpoints of a job, alone on its machine. Raises `InputError`."""
    if checkpoints is None:
        return None
    size = questions.pace(setup).size
    if checkpoints.storage is not None:
        pause = size / checkpoints.storage
        return Saves(steps=checkpoints.steps, pause=pause)
    if program is None:
        fault = "has checkpoints that are traffic, but no step that repeats"
        raise InputError(setup.name, fault, "set checkpoints.storage, or leave checkpoints out")
    copies = Copies(program=program, topology=setup.machine.topology, checkpoints=checkpoints,
                    size=size, name=setup.name)  # fmt: skip

    def work(doing: str, parts: Sequence[Copy]) -> Work:
        copying = alone(program, copies.work(parts))
        return Work(doing, copying, play(copying, setup.machine, engine="clock").end)

    later = checkpoints.asynchronous
    return Saves(
        steps=checkpoints.steps,
        stop=work("copy to hosts" if later else "checkpoint",
                  copies.to_host if later else copies.to_storage),
        beside=work("checkpoint", copies.from_host) if later else None,
        back=work("reading back", copies.back),
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False)
class MultiJobSetup(WithoutProgram):
    """The cluster, and the jobs that come to it."""

    kind: ClassVar[str] = "sim.jobs.multi_job.kind"

    scenario: MultiJobScenario
    machine: Machine
    templates: tuple[Template, ...]

    @property
    def name(self) -> str:
        return self.scenario.name

    @cached_property
    def jobs(self) -> int:
        """The number of jobs, copies included."""
        return sum(template.table.copies for template in self.templates)

    @property
    def columns(self) -> dict[str, Any]:
        """The numbers of GPUs of the cluster and of jobs."""
        return {"gpus": self.machine.topology.gpus, "jobs": self.jobs}

    @property
    def effort(self) -> float:
        """The order of magnitude of the simulation's time (s of a core)."""
        return _OF_JOB * self.jobs


def from_scenario(scenario: MultiJobScenario) -> MultiJobSetup:
    """The cluster of a scenario and its jobs. Raises `InputError`."""
    copies = sum(table.copies for table in scenario.job)
    seconds = copies * (_OF_COPY + copies * _OF_WAITING)
    limit.refuse_long(scenario.name, f"{copies:,} jobs", seconds)
    topology = load_topology(scenario)
    topology = topology.with_gpus(scenario.gpus or topology.gpus)
    on = machine(topology, None, scenario.straggler, scenario.name)
    if scenario.faults is not None and scenario.horizon is not None:
        faults = scenario.horizon * topology.gpus / scenario.faults.every
        limit.refuse_long(scenario.name, f"{faults:,.0f} faults", faults * _OF_FAULT)
    templates = _told_apart(
        [_template(number, table, scenario, topology) for number, table in enumerate(scenario.job)]
    )
    written = sum(_written(template, scenario.horizon, on) for template in templates)
    limit.refuse_long(
        scenario.name, f"{written:,.0f} checkpoints on common links", written * _OF_CHECKPOINT
    )
    return MultiJobSetup(scenario=scenario, machine=on, templates=templates)


def _written(template: Template, horizon: float | None, cluster: Machine) -> float:
    """Estimate how many checkpoints the copies write over links that other jobs may load. A job
    without a number of steps writes until the horizon."""
    checkpoints, table = template.scenario.checkpoints, template.table
    if checkpoints is None or checkpoints.storage is not None:
        return 0.0
    steps = float(table.steps or 0)
    if not steps and horizon is not None:
        empty = Occupancy(cluster.topology)
        place = empty.find(template.gpus, "packed", generator(0, "estimate"))
        steps = horizon / placed(template, template.name, place, cluster).seconds if place else 0.0
    return table.copies * steps / checkpoints.steps


def _told_apart(templates: Sequence[Template]) -> tuple[Template, ...]:
    """Append numbers to equal names."""
    names = [template.name for template in templates]
    return tuple(
        replace(t, name=f"{t.name} ({names[:n].count(t.name) + 1})")
        if names.count(t.name) > 1
        else t
        for n, t in enumerate(templates)
    )


def _template(
    number: int, table: JobTable, cluster: MultiJobScenario, topology: Topology
) -> Template:
    where = f"{cluster.name}, job {number + 1}"
    read = _read(table, cluster.topology, where)
    if read.gpus is None and getattr(read.layout, "dp", read) is None:  # as many replicas as fit
        read = replace(read, gpus=table.named(topology) or None)
    for key in read.change:
        if key.partition(".")[0] in _OF_CLUSTER:
            remedy = "leave it out, or put it under [change] of the cluster"
            raise InputError(where, f"{key} changes the cluster, which all jobs share", remedy)
    if any(straggler.link for straggler in read.straggler):
        remedy = "name it in [[straggler]] of the cluster"
        raise InputError(where, "a straggler is a link, which all jobs share", remedy)
    if hasattr(read, "job"):
        raise InputError(where, "is a scenario with jobs itself", "name the jobs one by one")
    setup = kind.set_up(replace(read, loader=None))  # its storage is the cluster's
    gpus = setup.machine.topology.gpus
    return Template(number, table, read, gpus, table.name or read.name)


def _read(table: JobTable, cluster: str | Topology, where: str) -> BaseScenario:
    """Read the scenario of a job; tables and recordings without a topology get the `cluster`."""
    settings = dotted(table.set)
    if isinstance(table.scenario, Mapping):
        defaults = {"topology": cluster, "name": where.rpartition(", ")[2]}
        document = defaults | deepcopy(dict(table.scenario))
        return kind.described(document, settings, where)
    claimed = kind.claims(table.scenario) and isinstance(cluster, str)
    return kind.load(table.scenario, {"topology": cluster, **settings} if claimed else settings)


@dataclass(frozen=True, eq=False)
class Placed:
    """A copy of a job on its GPUs. It trains, or is `doing` other work; a step, or that work, takes
    `seconds` without other jobs."""

    template: Template
    name: str
    place: Place
    machine: Machine
    alone: Alone
    program: Program | None
    seconds: float
    doing: str = ""
    _others: dict[str, "Placed"] = field(default_factory=dict)

    @property
    def saves(self) -> Saves | None:
        """Its checkpoints."""
        return self.alone.saves

    @cached_property
    def guest(self) -> Guest:
        """The job as a guest on links that other jobs may load, too."""
        both = self.saves is not None and self.saves.beside is not None
        known = self.alone.known[self.doing]
        return Guest(
            self.name, self.place, self.machine, self.program, self.template.work, both, known
        )

    def at(self, work: Work) -> "Placed":
        """Return this copy while it does other work than training."""
        if work.doing not in self._others:
            self._others[work.doing] = replace(
                self, name=f"{self.name}, {work.doing}", doing=work.doing,
                program=work.program, seconds=work.seconds,
            )  # fmt: skip
        return self._others[work.doing]


def placed(template: Template, name: str, place: Place, cluster: Machine) -> Placed:
    """A copy of a job at a place. Raises `InputError` if the job cannot run there."""
    topology = place.topology()
    on = place.machine(cluster, topology)
    alone = template.alone(on, _pattern(on, place))
    return Placed(template, name, place, on, alone, alone.program, alone.seconds)


def _pattern(on: Machine, place: Place) -> Any:
    """A key that is equal for places in which a job alone behaves alike: which nodes share pods and
    stores, the slots, and slow GPUs. If cables join the nodes or a link is degraded, the key has
    the numbers of the nodes."""
    topology = on.topology
    odd = tuple(on.slowdown.items()), topology.degraded
    if not topology.hierarchical or topology.degraded:
        return place.nodes, place.slots, odd
    return shared_by(topology, range(topology.nodes)), place.slots, odd


def shared_by(cluster: Topology, nodes: Iterable[int]) -> tuple[tuple[int, ...], ...]:
    """Which nodes share pods, and which share stores, as numbers by first appearance."""
    nodes = list(nodes)
    return tuple(renumbered(list(map(of, nodes))) for of in (cluster.pod_of, cluster.store_of))


def renumbered(names: list[int]) -> tuple[int, ...]:
    """Names numbered by first appearance.

    >>> renumbered([4, 4, 2, 4])
    (0, 0, 1, 0)
    """
    numbers: dict[int, int] = {}
    return tuple(numbers.setdefault(name, len(numbers)) for name in names)
