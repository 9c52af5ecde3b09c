"""Predictions compared with measured runs: the error of every row and of every table.

`sim.analysis.validation.errors` turns rows into the errors of a table.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from sim.analysis import executors
from sim.analysis.validation.settings import NO_SETTINGS, check
from sim.analysis.validation.table import JOB, REQUIRED, number, records, run_by, setup_of
from sim.config.counting import counted
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.grouped import grouped
from sim.config.stopping import so_far
from sim.parallel.memory import Memory, memories
from sim.parallel.step import training_step
from sim.results.result import Result
from sim.scenario.setup import PlanSetup
from sim.simulate import answer
from sim.uncertainty.evidence import Campaign

_Task = tuple[tuple[int, Mapping[str, Any]], ...]  # rows with their numbers
_OF_A_RUN = ("id", "software", "step_time_s")  # columns in which rows of one job may differ


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidatedRun:
    """A measured run and its prediction; `reason` says why a prediction is missing.

    Times are in s, memory in bytes; None if not measured or not predicted. `at_peak` is the time of
    all executed matrix products, recomputation included, at the device's peak rate. Rows of a
    `study` differ in one respect and print exact times. Layouts of one job have equal `job`.
    `configuration` holds sizes and choices by name. `low` and `high` bound the prediction's
    interval; `incident` says what disturbed the measured run.
    """

    id: str
    measured: float | None = None
    predicted: float | None = None
    at_peak: float | None = None
    memory_measured: float | None = None
    memory_predicted: float | None = None
    memory_kind: str = ""
    zero: int = 0
    fits_measured: bool = True
    fits_predicted: bool | None = None
    reason: str = ""
    incident: str = ""
    campaign: Campaign | None = None
    study: str = ""
    job: tuple[str, ...] = ()
    configuration: Mapping[str, Any] = field(default_factory=dict)
    low: float | None = None
    high: float | None = None

    @property
    def fault(self) -> str:
        """The id, then the reason without the id."""
        return f"{self.id}: {self.reason.removeprefix(self.id).lstrip(':, ')}"

    @property
    def error(self) -> float | None:
        """predicted / measured - 1."""
        if self.measured is None or self.predicted is None:
            return None
        return self.predicted / self.measured - 1.0

    @property
    def memory_error(self) -> float | None:
        """memory_predicted / memory_measured - 1."""
        if self.memory_measured is None or self.memory_predicted is None:
            return None
        return self.memory_predicted / self.memory_measured - 1.0


@dataclass(frozen=True, slots=True)
class _Simulated:
    """A simulated job with its result and the memory of its stages."""

    setup: PlanSetup
    result: Result
    memories: Sequence[Memory]


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidatedTable:
    """All rows of a table."""

    name: str
    rows: tuple[ValidatedRun, ...]

    @property
    def views(self) -> tuple["ValidatedTable", ...]:
        """The table; if some rows name an incident, also a table without these rows."""
        calm = tuple(run for run in self.rows if not run.incident)
        if len(calm) in (0, len(self.rows)):
            return (self,)
        return self, replace(self, name=f"{self.name}, undisturbed", rows=calm)


def validate(
    paths: Iterable[Path],
    *,
    settings: Mapping[str, Any] = NO_SETTINGS,
    stack_of: Mapping[str, str] = NO_SETTINGS,
    at_most: int | None = None,
    jobs: executors.Jobs = None,
) -> list[ValidatedTable]:
    """Simulate every row of every table, or `at_most` rows of each, evenly spread. `settings` apply
    by dotted key; `stack_of` maps software to stacks. Raises `InputError` for a table that cannot
    be read, a setting that no row takes, or software that no row names."""
    return validate_each(paths, [settings], stack_of=stack_of, at_most=at_most, jobs=jobs)[0]


def validate_each(
    paths: Iterable[Path],
    variants: Sequence[Mapping[str, Any]],
    *,
    stack_of: Mapping[str, str] = NO_SETTINGS,
    at_most: int | None = None,
    jobs: executors.Jobs = None,
) -> list[list[ValidatedTable]]:
    """Simulate the tables with each variant of settings; unchanged jobs are simulated once."""
    paths = list(paths)
    tables = run_by([records(path) for path in paths], stack_of)
    measured = [
        (path.stem, _spread(table, at_most)) for path, table in zip(paths, tables, strict=True)
    ]
    rows = [row for _, table in measured for row in table]
    for settings in variants:
        check(settings, rows, all_used=len(variants) == 1)
    found = _predicted(rows, variants, jobs)
    return [_tables(measured, found, variant) for variant in range(len(variants))]


def _spread(rows: list[dict[str, Any]], at_most: int | None) -> list[dict[str, Any]]:
    """Return `at_most` of the rows, evenly spread."""
    if at_most is None or len(rows) <= at_most:
        return rows
    return [rows[place * len(rows) // at_most] for place in range(at_most)]


def _tables(
    measured: Iterable[tuple[str, Sequence[Any]]],
    found: Mapping[int, Sequence[ValidatedRun]],
    variant: int,
) -> list[ValidatedTable]:
    tables, first = list[ValidatedTable](), 0
    for name, rows in measured:
        places = range(first, first + len(rows))
        first += len(rows)
        runs = tuple(found[place][variant] for place in places if place in found)
        if runs or not rows:  # a stopped validation leaves out tables without an answer
            tables.append(ValidatedTable(name=name, rows=runs))
    return tables


def _predicted(
    rows: Sequence[Mapping[str, Any]], variants: Sequence[Mapping[str, Any]], jobs: executors.Jobs
) -> dict[int, list[ValidatedRun]]:
    """Return the predictions of each row with every variant, by the row's index."""
    work = partial(_of_task, variants)
    answers = so_far(executors.answers(work, _together(rows), jobs=jobs))
    return dict(counted(chain.from_iterable(answers), total=len(rows), unit="row"))


def _together(rows: Sequence[Mapping[str, Any]]) -> list[_Task]:
    """Return the rows as tasks. Rows that may be the same job are in one task."""
    shape = [column for column in REQUIRED if column not in _OF_A_RUN]
    tasks = grouped((tuple(str(row[own]) for own in shape), (n, row)) for n, row in enumerate(rows))
    return [tuple(task) for task in tasks.values()]


def _of_task(
    variants: Sequence[Mapping[str, Any]], task: _Task
) -> list[tuple[int, list[ValidatedRun]]]:
    known: list[_Simulated] = []
    return [(place, [predict(row, variant, known) for variant in variants]) for place, row in task]


def predict(
    record: Mapping[str, Any],
    settings: Mapping[str, Any] = NO_SETTINGS,
    known: list[_Simulated] | None = None,
) -> ValidatedRun:
    """Simulate a row, unless its job is among the `known` jobs; a new job is added to them."""
    measured: dict[str, Any] = {"id": str(record["id"])}
    try:
        measured |= _measured(record)
        found = _simulated(setup_of(record, settings), [] if known is None else known)
    except InputError as error:
        return ValidatedRun(**measured, reason=str(error))
    setup, result = found.setup, found.result
    kind = measured["memory_kind"]
    return ValidatedRun(
        **measured,
        zero=setup.job.plan.zero,
        predicted=result.step_time,
        at_peak=result.hfu * result.step_time,
        memory_predicted=max(_counted(kind, setup, memory) for memory in found.memories),
        fits_predicted=result.fits,
        configuration=_configuration(record, setup),
        campaign=Campaign.of(setup.job, setup.machine.topology.name),
        low=result.step_time_low,
        high=result.step_time_high,
    )


def _simulated(setup: PlanSetup, known: list[_Simulated]) -> _Simulated:
    """Simulate a job on its machine, once even if it was measured several times."""
    for simulated in known:
        if setup.same_as(simulated.setup):
            return simulated
    result = answer(setup)
    known.append(_Simulated(setup, result, memories(setup.job, training_step(setup.job))))
    return known[-1]


def _counted(kind: str, setup: PlanSetup, memory: Memory) -> float:
    """Return the bytes that a kind of memory figure counts. "allocated" counts the bytes that torch
    has allocated at the end of a step, "reserved" the bytes that torch has reserved then.
    "nvidia-smi" counts the bytes that the driver shows (with context and NCCL). Other kinds are the
    most allocated at once. A stack says which kind its "peak" is."""
    kind = setup.job.stack.allocator.reports if kind == "peak" else kind
    if kind == "allocated":
        return memory.rest
    if kind == "nvidia-smi":
        return memory.reserved + setup.job.device.reserve
    return memory.reserved if kind == "reserved" else memory.total


def _configuration(record: Mapping[str, Any], setup: PlanSetup) -> dict[str, Any]:
    """Return the configuration of a row, as it was simulated."""
    job, topology = setup.job, setup.machine.topology
    plan, model = job.plan, job.model
    named = record.get("model")
    return {
        "model": named
        if isinstance(named, str)
        else f"{job.execution.shape.family} {model.layers}x{model.hidden}",
        "cluster": str(record["cluster"]),
        "software": str(record["software"]),
        "gpus": topology.gpus,
        "nodes": topology.nodes,
        **{axis: plan.size(axis) for axis in ("tp", "pp", "dp", "cp", "ep", "dp_replicate")},
        "zero": plan.zero,
        "microbatch": plan.microbatch,
        "global_batch": plan.global_batch,
        "seq": model.seq,
        "precision": plan.precision,
        "schedule": plan.pipeline if plan.pp > 1 else "",
        "interleave": plan.interleave,
        "recompute": str(record["recompute"]),
    }


def _study(record: Mapping[str, Any]) -> str:
    study, exact = record.get("study"), record.get("exact", "yes")
    return study if isinstance(study, str) and str(exact).lower() in ("yes", "true") else ""


def _measured(record: Mapping[str, Any]) -> dict[str, Any]:
    memory, kind = number(record, "memory_gb"), record.get("memory_kind")
    incident = record.get("incident")
    return {
        "incident": incident if isinstance(incident, str) else "",
        "measured": number(record, "step_time_s"),
        "memory_measured": None if memory is None else memory * 2.0**30,
        "memory_kind": kind if isinstance(kind, str) else "",
        "fits_measured": bool(record.get("fits", True)),
        "study": _study(record),
        "job": tuple(str(record[column]) for column in JOB),
    }
