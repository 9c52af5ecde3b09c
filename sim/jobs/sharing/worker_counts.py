"""How many workers to use: time and cost of reaching a target with each number of workers."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from math import inf, isfinite
from os import PathLike, fspath
from typing import Any

import numpy as np

from sim.config.counting import counted
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.readable import human_seconds
from sim.config.stopping import so_far
from sim.config.units import HOUR
from sim.jobs.sharing.assemble import inputs_of
from sim.jobs.sharing.kind import sharing_of
from sim.jobs.sharing.learning.efficiency import Efficiency, efficiency_of
from sim.jobs.sharing.learning.task import NoTask
from sim.jobs.sharing.learning.tasks import Task
from sim.jobs.sharing.loading import from_scenario
from sim.jobs.sharing.memory import holders
from sim.jobs.sharing.run import run
from sim.jobs.sharing.scenario import SharingScenario
from sim.jobs.sharing.setup import SharingSetup
from sim.jobs.sharing.update_record import CurvePoint, held
from sim.jobs.sharing.worker_pool import WorkerPool
from sim.kind import load
from sim.results.answer import Answer, Inputs
from sim.results.formatting import several
from sim.scenario.scenario import Scenario
from sim.scenario.settings import Settings, settings_of

_MOST = 10_000  # the most steps that each worker trains to reach a target
# The least gain for which workers are worth adding. Without a network, doubling the workers gains
# this much when their batch reaches B_crit.
_WORTH = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerCount:
    """The row for a number of workers. An update averages `batch` samples. The run needs `seconds`
    and `samples` to the target, which are infinite if the target is never reached. `dollars` is the
    rent of the workers' GPUs, if the topology has a price. `gain` is the relative speedup over the
    row before, divided by the relative growth in workers: (T_before / T - 1) / (n / n_before - 1),
    for times T and numbers of workers n. The first row has gain 1. `fits` says whether all workers
    and servers have enough memory."""

    workers: int
    gpus: int
    batch: float
    samples: float
    seconds: float
    samples_per_second: float
    gain: float = 1.0
    price: float | None = None
    fits: bool = True

    @property
    def gpu_hours(self) -> float:
        return self.seconds / HOUR * self.gpus

    @property
    def dollars(self) -> float | None:
        return None if self.price is None else self.gpu_hours * self.price

    @property
    def time_shown(self) -> str:
        """The time to the target, for people."""
        return human_seconds(self.seconds) if isfinite(self.seconds) else "never"

    @property
    def cost_shown(self) -> str:
        """The cost of reaching the target, for people; empty where it is never reached."""
        if not isfinite(self.seconds):
            return ""
        hours = f"{self.gpu_hours:,.3g} GPU-hours"
        return hours if self.dollars is None else f"${self.dollars:,.2f}"

    @property
    def costs(self) -> str:
        """Time and cost of reaching the target, for people."""
        return ", ".join(filter(None, (self.time_shown, self.cost_shown)))


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerCounts(Answer):
    """A row for each number of workers; `stop` is the row beyond which more workers help little.

    Samples to the target follow the given curve `efficiency`. If the task was `trained`, the
    samples come from its runs, and the curve is an estimate."""

    view = "sim.interface.views.sharing:worker_counts"
    picture = "sim.interface.plots.sharing:workers"
    unwritten = ("rows",)
    derived = ("stop=stops_at", "rows=records")
    frame_rows = "records"
    frame_index = ("workers",)

    scenario: str
    inputs: Inputs
    efficiency: Efficiency
    trained: bool
    rows: tuple[WorkerCount, ...]

    @property
    def stop(self) -> WorkerCount:
        """The last row before the first row that wastes more than half of its added workers."""
        last = self.rows[0]
        for row in self.rows[1:]:
            if row.gain < _WORTH:
                break
            last = row
        return last

    @property
    def basis(self) -> str:
        """The source of the samples to the target."""
        if self.trained:
            return "Samples to the target are those of the task's runs, with staleness and drift."
        return "Samples to the target come from the curve, which ignores staleness and drift."

    @property
    def sentence(self) -> str:
        """The number beyond which more workers help little, with its cost and the cost of the last
        row."""
        curve, stop, end = self.efficiency, self.stop, self.rows[-1]
        at = f"B_crit = {curve.critical_batch:,.0f} samples"
        if stop is end:
            return f"{at}: {several(end.workers, 'worker')} still help ({end.costs})"
        more = f"{end.workers:,}: {end.costs}"
        few = f"{several(stop.workers, 'worker')} ({stop.costs})"
        return f"{at}: more than {few} help little ({more})"

    @property
    def stops_at(self) -> int:
        return self.stop.workers

    @property
    def fits(self) -> bool:
        """Whether any number of workers has enough memory."""
        return any(row.fits for row in self.rows)

    @property
    def cost(self) -> str:
        """The unit of the costs in `points`."""
        return "GPU-hours" if self.rows[0].dollars is None else "dollars"

    @property
    def points(self) -> list[tuple[int, float, float]]:
        """The workers, seconds and cost of each row."""
        return [
            (row.workers, row.seconds, row.gpu_hours if row.dollars is None else row.dollars)
            for row in self.rows
        ]

    @property
    def records(self) -> list[dict[str, Any]]:
        return [
            {**asdict(row), "gpu_hours": row.gpu_hours, "dollars": row.dollars} for row in self.rows
        ]


def workers(
    scenario: str | PathLike[str] | Scenario,
    counts: Iterable[int] = (1, 2, 4, 8),
    *,
    critical_batch: float | None = None,
    least_samples: float | None = None,
    task: Task | None = None,
    method: str | PathLike[str] | None = None,
    price: str | None = None,
    settings: Settings = (),
) -> WorkerCounts:
    """Time to the target of a scenario and its cost with each number of workers.

    `critical_batch` and `least_samples` (samples) replace the curve of `[sharing.efficiency]`.
    Without any curve the scenario's task, or `task`, is trained. `method` is the name of a method
    or a Python file that adds a method; `price` is a GPU's rent such as "2 USD/h" instead of the
    topology's. Raises `InputError`.

    >>> curve = {"critical_batch": 64.0, "least_samples": 1e6}
    >>> workers("all-reduce-ddp", (1, 2), **curve, settings="sharing.steps=3").rows[1].gpus
    2
    """
    method_settings = {} if method is None else {"sharing.method": fspath(method)}
    job = sharing_of(load(scenario, {**method_settings, **settings_of(settings, price)}))
    if (critical_batch is None) != (least_samples is None):
        fault = "--critical-batch and --least-samples go together"
        raise InputError("sim workers", fault, "give both, or neither")
    curve = None
    if critical_batch is not None and least_samples is not None:
        curve = Efficiency(critical_batch=critical_batch, least_samples=least_samples)
    return worker_counts(job, list(counts), curve, task=task)


def worker_counts(
    scenario: SharingScenario,
    counts: Sequence[int],
    efficiency: Efficiency | None = None,
    *,
    task: Task | None = None,
) -> WorkerCounts:
    """Time to target and cost with each number of workers.

    Samples a second are simulated. Samples to the target come from the curve, at the batch that one
    update averages (`Sharing.averaged`); staleness and drift cost no samples there. Without a curve
    the scenario's task, or `task`, is trained with each number of workers, as `sim run` and `sim
    compare` train it. Training ends when the loss stays at the target, at the latest after 10,000
    steps of every worker. The curve is then estimated (`efficiency_of`). Raises `InputError`.
    """
    if list(counts) != sorted(set(counts)) or not counts or counts[0] < 1:
        remedy = "give each number once, in order, e.g. 1,2,4,8"
        raise InputError(
            "--counts", f"{','.join(map(str, counts))} is no rising list of worker numbers", remedy
        )
    curve = efficiency or scenario.sharing.efficiency
    trained = curve is None
    curve = curve or _of_task(scenario, task)
    learning = None if not trained else scenario.sharing.learning
    using = task if trained else NoTask()
    plans = [replace(scenario.sharing, workers=count, learning=learning) for count in counts]
    jobs = [replace(scenario, sharing=plan) for plan in plans]
    setups = [_setup(job, using) for job in jobs]
    rows: list[WorkerCount] = []
    made = so_far(
        _row(setup, *(_trained(job, setup, using) if trained else _by_curve(setup, curve)))
        for job, setup in zip(jobs, setups, strict=True)
    )
    for row in counted(made, total=len(counts), unit="number of workers"):
        if rows:
            faster, more = _ratio(rows[-1].seconds, row.seconds), row.workers / rows[-1].workers
            row = replace(row, gain=(faster - 1.0) / (more - 1.0))
        rows.append(row)
    return WorkerCounts(
        scenario=scenario.name,
        inputs=inputs_of(setups[-1]),
        efficiency=curve,
        trained=trained,
        rows=tuple(rows),
    )


def _setup(job: SharingScenario, task: Task | None) -> SharingSetup:
    """Load a job. Raises an `InputError` that names an impossible number of workers."""
    try:
        return from_scenario(job, task=task, keep_spans=0)
    except InputError as error:
        where = f"--counts {job.sharing.workers}, {error.where}"
        raise InputError(where, error.what, error.remedy) from None


def _ratio(before: float, now: float) -> float:
    """The ratio of two times, either of which may be infinite."""
    return 1.0 if before == now else before / now


def _by_curve(setup: SharingSetup, curve: Efficiency) -> tuple[float, CurvePoint]:
    """Samples a second, and the samples that a curve needs at this batch."""
    pace, samples = _pace(run(setup)), curve.samples(setup.batch)
    return pace, CurvePoint(samples / pace, samples, inf, inf)


def _trained(
    job: SharingScenario, setup: SharingSetup, task: Task | None
) -> tuple[float, CurvePoint]:
    """Samples a second, and the point at which the task reaches its target. The run is repeated
    with twice the steps until the loss stays at the target."""
    while True:
        plan = job.sharing
        assert plan.learning is not None  # `_of_task` has checked it
        assert plan.learning.target is not None
        with np.errstate(over="ignore", invalid="ignore"):  # of a loss that diverges
            pool = run(setup)
            curve = pool.record.curve
        there = held(curve, plan.learning.target)
        gone = bool(curve) and not isfinite(curve[-1].loss)
        if there or gone or plan.steps >= _MOST or plan.until is not None:
            return _pace(pool), there or CurvePoint(inf, inf, inf, inf)
        job = replace(job, sharing=replace(plan, steps=min(2 * plan.steps, _MOST)))
        setup = from_scenario(job, task=task, keep_spans=0)


def _pace(pool: WorkerPool) -> float:
    return pool.record.samples / pool.end


def _row(setup: SharingSetup, pace: float, there: CurvePoint) -> WorkerCount:
    topology, plan, count = setup.machine.topology, setup.plan, len(setup.workers)
    gpus = len(setup.workers[0].gpus)
    parts = list(holders(plan, setup.workloads, setup.servers, topology, gpus))
    return WorkerCount(
        workers=count,
        gpus=count * plan.gpus_of_worker(topology.gpus_per_node),
        batch=setup.batch,
        samples=there.samples,
        seconds=there.seconds,
        samples_per_second=pace,
        price=topology.price.hour if topology.price else None,
        fits=all(part.fits for part in parts),
    )


def _of_task(scenario: SharingScenario, task: Task | None) -> Efficiency:
    plan, learning = scenario.sharing, scenario.sharing.learning
    if learning is None or learning.target is None or (task is None and learning.task == "none"):
        fault, remedy = (
            "has no task with a target",
            "set sharing.learning.target, or give the curve: [sharing.efficiency]",
        )
        raise InputError(scenario.name, fault, remedy)
    setup = from_scenario(scenario, task=task, keep_spans=0)
    count = len(setup.workers)
    rule = plan.rule(count, setup.task)
    return efficiency_of(setup.task, rule, learning.target, batch=plan.batch, workers=count)
