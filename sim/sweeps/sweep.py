"""Sweeps: one scenario asked many times, with values varied; one row of a tidy table a point.

Rows are plain JSON from the moment they are computed, whether by this process, another one or a
cluster, and whether now or in a sweep that was interrupted; so the same question has the same
bytes everywhere (`wall_seconds` aside, which is no part of the answer).
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.config import reads
from sim.config.errors import InputError
from sim.config.progress import counted
from sim.config.stopping import so_far
from sim.results.result import Result
from sim.scenario.scenario import NoPlan, RecordedScenario, Scenario, SharingScenario, load, name_of
from sim.scenario.setup import from_scenario
from sim.scenario.sharing_setup import from_scenario as shared
from sim.simulate import run
from sim.simulate_recording import simulate_recording
from sim.simulate_sharing import simulate_sharing
from sim.sweeps import executors, fingerprint
from sim.sweeps.points import Point
from sim.sweeps.store import Store
from sim.sweeps.table import METRICS, SHARED, WALL, Row, table

if TYPE_CHECKING:
    import pandas as pd


_TRIED = 64  # points of a value, until one of them is no mistake

Answer = tuple[str, str, reads.Reads]  # a task's key, its row, what was read


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepTask:
    """A point to simulate, and the hash of the question."""

    scenario: str | Scenario
    point: Point
    key: str
    samples: int = 0


def sweep(
    scenario: str | Scenario,
    points: Sequence[Point],
    *,
    always: Point | None = None,
    samples: int = 0,
    store: Path | None = None,
    jobs: int | None = None,
    cluster: str | None = None,
) -> "pd.DataFrame":
    """Simulate a scenario at every point, with what holds `always`; a table in the order of the
    points.

    Invalid points stay in the table with `valid` false and a `reason`. `store` keeps results, so
    that an interrupted sweep continues and a repeated one answers at once; `jobs` processes (one a
    core) or the Dask scheduler at `cluster` do the work; with `samples` so many steps with
    stragglers are drawn at every point (`sim.samples.samples`). The attribute `damaged` of the
    table counts stored rows that were computed again because the disk has spoiled them. Raises
    `InputError` for keys that do not exist and values of the wrong kind, before any work.
    """
    asked = [{**(always or {}), **point} for point in points]
    check(scenario, asked, always or {})
    keys = [fingerprint.key(scenario, point, (samples,)) for point in asked]
    tasks = [
        SweepTask(scenario=scenario, point=point, key=key, samples=samples)
        for point, key in zip(asked, keys, strict=True)
    ]
    damaged = 0
    if store is None:
        rows = _computed(tasks, {}, None, jobs, cluster)
    else:
        with Store(store) as results:
            stored = {key: text for key in keys if (text := results.get(key)) is not None}
            rows = _computed(tasks, stored, results, jobs, cluster)
            damaged = results.damaged
    found = [
        (point, json.loads(rows[task.key]))
        for point, task in zip(points, tasks, strict=True)
        if task.key in rows  # all of them, unless it was stopped
    ]
    frame = table(found)
    frame.attrs["damaged"] = damaged
    return frame


def check(scenario: str | Scenario, points: Sequence[Point], always: Point) -> None:
    """Refuse mistakes before any work: values that are wrong at every point that has them.

    What only does not fit together (sizes that do not divide) is an invalid row, not a mistake.
    """
    load(scenario, always)
    right: set[tuple[str, str]] = set()
    for own in _values(points):
        if own in right:
            continue
        key, value = own
        wrong = None
        for point in islice((one for one in points if repr(one.get(key)) == value), _TRIED):
            wrong = _mistake(scenario, point)
            if wrong is None:
                right |= {(name, repr(one)) for name, one in point.items()}
                break
        if wrong is not None:
            raise wrong


def _mistake(scenario: str | Scenario, point: Point) -> InputError | None:
    """What is wrong with a point by itself, beside sizes."""
    try:
        changed = load(scenario, point)
        if isinstance(changed, SharingScenario):
            shared(changed, keep_spans=0)
        elif isinstance(changed, RecordedScenario):
            simulate_recording(changed)
        else:
            from_scenario(changed)
    except InputError as error:
        return None if _of_layout(error) else error
    return None


def _values(points: Sequence[Point]) -> list[tuple[str, str]]:
    """The values of each key, of long ranges the first and the last few."""
    distinct: dict[str, dict[str, None]] = {}
    for point in points:
        for key, value in point.items():
            distinct.setdefault(key, {})[repr(value)] = None
    listed = {key: list(values) for key, values in distinct.items()}
    few = {key: v if len(v) <= 16 else [*v[:8], *v[-8:]] for key, v in listed.items()}
    return [(key, value) for key, values in few.items() for value in values]


def _of_layout(error: InputError) -> bool:
    """Whether sizes do not fit together, rather than a key or value being no such thing."""
    return error.where.rpartition(", ")[2] in ("plan", "balance") or "GPUs" in error.what


def _computed(
    tasks: Sequence[SweepTask],
    rows: dict[str, str],
    store: Store | None,
    jobs: int | None,
    cluster: str | None,
) -> dict[str, str]:
    """The rows of all tasks by key; each new row is stored at once."""
    missing = list({task.key: task for task in tasks if task.key not in rows}.values())
    total = len(missing) + len(rows)
    fresh = so_far(_new_rows(missing, jobs, cluster))
    for key, text, seen in counted(fresh, total=total, unit="point", done=len(rows)):
        rows[key] = text
        if store is not None:
            store.put(key, text, seen)
    return rows


def _new_rows(
    tasks: Sequence[SweepTask], jobs: int | None, cluster: str | None
) -> Iterator[Answer]:
    if not tasks:
        return iter(())
    if cluster is None:
        remedy = "run it again; what is stored stays valid"
        return _expected(tasks, executors.here(answer, tasks, jobs=jobs), "sim sweep", remedy)
    answers = executors.cluster(answer, tasks, address=cluster)
    return _expected(tasks, answers, f"--cluster {cluster}", "install the same everywhere")


def _expected(
    tasks: Sequence[SweepTask], answers: Iterator[Answer], where: str, remedy: str
) -> Iterator[Answer]:
    """Refuse answers of workers that run other code, whose keys differ, or read other files."""
    keys = {task.key for task in tasks}
    held: dict[tuple[tuple[str, str], str], bool] = {}
    for key, text, seen in answers:
        held |= {one: reads.holds(dict([one])) for one in seen.items() if one not in held}
        if key not in keys or not all(held[one] for one in seen.items()):
            what = "a worker found another program or other models, topologies or scenarios"
            raise InputError(where, what, remedy)
        yield key, text, seen


def answer(task: SweepTask) -> Answer:
    """The key of a task as this process computes it, its row, and what was read to find it."""
    with reads.recorded() as seen:
        text = json.dumps(row(task.scenario, task.point, task.samples))
    return fingerprint.key(task.scenario, task.point, (task.samples,)), text, seen


def row(scenario: str | Scenario, point: Point, samples: int = 0) -> Row:
    """Inputs and metrics of one point; `reason` says why a row is not valid."""
    job = load(scenario, point)
    if isinstance(job, SharingScenario):
        return _shared_row(job, samples)
    inputs = {**_named(job), **_plan(job.plan)}
    try:
        if isinstance(job, RecordedScenario):
            result = simulate_recording(job)
            inputs |= {"gpus": result.ranks}
        else:
            setup = from_scenario(job)
            inputs |= {"gpus": setup.machine.topology.gpus, **_plan(setup.job.plan)}
            result = run(setup)
        drawn = _drawn(job, samples) if samples else {}
    except InputError as error:
        return {**inputs, "valid": False, "reason": str(error), WALL: 0.0}
    reason = "" if result.fits else _too_big(result)
    return {**inputs, **metrics(result), **drawn, "valid": result.fits, "reason": reason,
            WALL: result.wall_seconds}  # fmt: skip


def _named(job: Scenario) -> Row:
    named = {"model": job.model, "topology": job.topology, "stack": job.stack}
    return {"scenario": job.name, **{key: name_of(own) for key, own in named.items()}}


def _shared_row(job: SharingScenario, samples: int) -> Row:
    """The same of workers that share updates."""
    inputs = {**_named(job), "method": job.sharing.method}
    try:
        outcome = simulate_sharing(job, keep_spans=0)
        drawn = _drawn_runs(job, samples) if samples else {}
    except InputError as error:
        return {**inputs, "valid": False, "reason": str(error), WALL: 0.0}
    columns: Row = {name: getattr(outcome, name) for name in SHARED}
    columns |= {f"seconds.{cause}": share * outcome.time for cause, share in outcome.shares.items()}
    columns |= {f"memory.{one['name']}": one["total"] for one in outcome.memory}
    reason = "" if outcome.fits else outcome.warnings[0]
    columns |= {"staleness": outcome.staleness["mean"], "valid": outcome.fits, "reason": reason}
    return {**inputs, **columns, **drawn, WALL: outcome.wall_seconds}


def _drawn_runs(job: SharingScenario, count: int) -> Row:
    """The distribution over seeds."""
    from sim.samples.sharing import samples

    drawn = samples(job, count).drawn
    shares = ("mean", "median", "p95", "p99")
    return {
        f"samples.{name}.{share}": drawn[name][share]
        for name in ("time", "samples_per_second", "loss")
        for share in shares
        if name in drawn
    }


def _drawn(job: Scenario, count: int) -> Row:
    """The distribution of the step time with stragglers."""
    from sim.samples.samples import samples

    drawn = samples(job, count)
    quantiles = {f"samples.p{share}": drawn.quantile(share / 100) for share in (50, 95, 99)}
    return {"samples.mean": drawn.mean, "samples.loss": drawn.loss, **quantiles}


def _plan(plan: Any) -> Row:
    if isinstance(plan, NoPlan):
        return {}
    return {f"plan.{key}": value for key, value in asdict(plan).items()}


def metrics(result: Result) -> Row:
    """The numbers of a result in flat columns; seconds by cause and bytes by part are prefixed."""
    columns = {name: getattr(result, name) for name in METRICS}
    columns |= {f"seconds.{cause}": value for cause, value in result.breakdown.items()}
    return columns | {f"memory.{part}": value for part, value in result.memory_per_gpu.items()}


def _too_big(result: Result) -> str:
    needed, offered = result.memory_per_gpu["total"] / 2**30, result.capacity / 2**30
    return f"takes {needed:.1f} GiB of {offered:.1f} GiB a GPU"
