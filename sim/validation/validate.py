"""Predictions held against measured runs: the error of every row and of every table.

`sim.validation.errors` turns rows into errors of a table, `sim.validation.text` shows them.
"""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from sim.config.errors import InputError
from sim.parallel.memory import Memory, memories
from sim.parallel.step import training_step
from sim.scenario.setup import Setup
from sim.simulate import run
from sim.sweep.progress import counted
from sim.validation.table import number, records, setup_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidatedRun:
    """A measured run and its prediction; `reason` says why there is none.

    Times in s, memory in bytes; None where not measured or not predicted. `at_peak` is the time
    of all its matrix products, repeated ones too, at the device's peak rate. Rows of a `study`
    differ in one thing, where their times are printed exactly. `low` and `high` are the bounds of
    the prediction's interval, `incident` what the run measured beside itself.
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
    stack: str = ""
    device: str = ""
    topology: str = ""
    study: str = ""
    low: float | None = None
    high: float | None = None

    @property
    def error(self) -> float | None:
        """predicted / measured - 1."""
        if self.measured is None or self.predicted is None:
            return None
        return self.predicted / self.measured - 1.0

    @property
    def memory_error(self) -> float | None:
        """The same of memory."""
        if self.memory_measured is None or self.memory_predicted is None:
            return None
        return self.memory_predicted / self.memory_measured - 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidatedTable:
    """All rows of a table."""

    name: str
    rows: tuple[ValidatedRun, ...]

    @property
    def views(self) -> tuple["ValidatedTable", ...]:
        """The table, and once more without the rows that name an incident, if it has any."""
        calm = tuple(run for run in self.rows if not run.incident)
        if len(calm) in (0, len(self.rows)):
            return (self,)
        return self, replace(self, name=f"{self.name}, undisturbed", rows=calm)


def validate(paths: Iterable[Path], *, processes: int | None = None) -> list[ValidatedTable]:
    """Simulate every row of every table. Raises `InputError` for a table that cannot be read."""
    measured = [(path.stem, records(path)) for path in paths]
    runs = iter(_predicted([row for _, rows in measured for row in rows], processes))
    return [
        ValidatedTable(name=name, rows=tuple(islice(runs, len(rows)))) for name, rows in measured
    ]


def _predicted(rows: Sequence[Mapping[str, Any]], processes: int | None) -> list[ValidatedRun]:
    with ProcessPoolExecutor(max_workers=processes) as pool:
        runs = pool.map(predict, rows, chunksize=4)
        return list(counted(runs, total=len(rows), unit="row"))


def predict(record: Mapping[str, Any]) -> ValidatedRun:
    """Simulate a row."""
    measured: dict[str, Any] = {"id": str(record["id"])}
    try:
        measured |= _measured(record)
        setup = setup_of(record)
        result = run(setup)
    except InputError as error:
        return ValidatedRun(**measured, reason=str(error))
    taken = memories(setup.job, training_step(setup.job))
    return ValidatedRun(
        **measured,
        zero=setup.job.plan.zero,
        predicted=result.step_time,
        at_peak=result.hfu * result.step_time,
        memory_predicted=max(_counted(measured["memory_kind"], setup, one) for one in taken),
        fits_predicted=result.fits,
        stack=setup.job.stack.name,
        device=setup.job.device.name,
        topology=str(record["cluster"]),
        low=result.step_time_low,
        high=result.step_time_high,
    )


def _counted(kind: str, setup: Setup, memory: Memory) -> float:
    """What a kind of memory figure counts: what torch has allocated at the end of a step, what it
    has reserved, what the driver shows (context and NCCL included), the most allocated at once; a
    "peak" is what the software prints by that name."""
    kind = setup.job.stack.allocator.reports if kind == "peak" else kind
    if kind == "allocated":
        return memory.rest
    if kind == "nvidia-smi":
        return memory.reserved + setup.job.device.reserve
    return memory.reserved if kind == "reserved" else memory.total


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
    }
