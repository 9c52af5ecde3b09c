"""From `[[job]]` tables to jobs that can be played: each with its own setup, whatever its kind."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import field, replace
from functools import cached_property
from typing import Any, ClassVar

from sim import kind
from sim.config import limit
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.engine.machine import Machine
from sim.hardware.cluster.topology import Link, Topology
from sim.jobs.multi_job.folding import Guest
from sim.jobs.multi_job.placed import Place
from sim.jobs.multi_job.scenario import JobTable, MultiJobScenario
from sim.kind import WithoutProgram
from sim.program.program import Program
from sim.results.answer import JobAnswer
from sim.scenario.machine import load_topology, machine
from sim.scenario.scenario import BaseScenario

_OF_COPY, _OF_WAITING = 3e-4, 2e-9  # s of one core: of each job, and for each other that may wait
_OF_FAULT = 2e-3  # s of one core
_OF_CLUSTER = ("topology", "network", "node", "host", "storage", "device")


@dataclass(frozen=True, eq=False)
class Template:
    """A `[[job]]`: what each of its copies runs on `gpus` GPUs of the cluster."""

    number: int
    table: JobTable
    scenario: BaseScenario
    gpus: int
    name: str
    _known: dict[Any, tuple[JobAnswer, Program | None]] = field(default_factory=dict)

    def alone(self, on: Machine, pattern: Any) -> tuple[JobAnswer, Program | None]:
        """Its answer where it is alone on a machine, and the program that it repeats, if it has
        one. Machines of one `pattern` are alike for it."""
        if pattern not in self._known:
            setup = replace(self._setup(on.topology), machine=on)
            try:
                program: Program | None = setup.program
            except InputError:
                program = None  # it is no step that repeats
            self._known[pattern] = kind.answer(setup), program
        return self._known[pattern]

    def work(self, on: Machine) -> tuple[float, Mapping[Link, float]]:
        """Seconds of a unit of its work on a machine, and the bytes that it puts on each link."""
        return kind.traffic(replace(self._setup(on.topology), machine=on))

    def _setup(self, topology: Topology) -> Any:
        gpus = None if self.scenario.layout is None else self.gpus
        return kind.set_up(replace(self.scenario, topology=topology, gpus=gpus))


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
    def columns(self) -> dict[str, Any]:
        """The GPUs of the cluster, and its jobs."""
        jobs = sum(template.table.copies for template in self.templates)
        return {"gpus": self.machine.topology.gpus, "jobs": jobs}


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
    templates = tuple(
        _template(number, table, scenario, topology) for number, table in enumerate(scenario.job)
    )
    return MultiJobSetup(scenario=scenario, machine=on, templates=templates)


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
    own = kind.set_up(replace(read, loader=None))  # its storage is the cluster's
    gpus = own.machine.topology.gpus
    return Template(number, table, read, gpus, table.name or read.name)


def _read(table: JobTable, cluster: str | Topology, where: str) -> BaseScenario:
    """The scenario of a job, on the `cluster` unless it names one itself."""
    if isinstance(table.scenario, Mapping):
        own = {"topology": cluster, "name": where.rpartition(", ")[2]}
        document = own | deepcopy(dict(table.scenario))
        return kind.described(document, table.set, where)
    claimed = kind.claims(table.scenario) and isinstance(cluster, str)
    return kind.load(table.scenario, {"topology": cluster, **table.set} if claimed else table.set)


@dataclass(frozen=True, eq=False)
class Placed:
    """A copy of a job on its GPUs: its answer alone, the seconds of a step alone."""

    template: Template
    name: str
    place: Place
    machine: Machine
    answer: JobAnswer
    program: Program | None
    seconds: float

    @cached_property
    def guest(self) -> Guest:
        """The job on links that others may load, too."""
        return Guest(self.name, self.place, self.machine, self.program, self.template.work)


def placed(template: Template, name: str, place: Place, cluster: Machine) -> Placed:
    """A copy of a job at a place. Raises `InputError` where it cannot run there."""
    own = place.topology()
    on = place.machine(cluster, own)
    answer, program = template.alone(on, _pattern(on, place))
    seconds = answer.get("step_time") or answer.get("time") / max(answer.get("updates"), 1)
    return Placed(template, name, place, on, answer, program, float(seconds))


def _pattern(on: Machine, place: Place) -> Any:
    """What tells places apart for a job alone: the pods of its nodes, numbered anew, or its nodes
    where cables join them or a link is degraded; what is slow."""
    topology = on.topology
    odd = tuple(on.slowdown.items()), topology.degraded
    if not topology.hierarchical or topology.degraded:
        return place.nodes, place.slots, odd
    return renumbered([topology.pod_of(node) for node in range(topology.nodes)]), place.slots, odd


def renumbered(names: list[int]) -> tuple[int, ...]:
    """Names numbered by first appearance.

    >>> renumbered([4, 4, 2, 4])
    (0, 0, 1, 0)
    """
    numbers: dict[int, int] = {}
    return tuple(numbers.setdefault(name, len(numbers)) for name in names)
