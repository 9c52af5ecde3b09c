"""Sweeps: one scenario asked many times, with values varied; one row of a tidy table a point.

Rows are plain JSON from the moment they are computed, whether by this process, another one or a
cluster, and whether now or in a sweep that was interrupted; so the same question has the same
bytes everywhere (`wall_seconds` aside, which is no part of the answer).
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.config.errors import InputError
from sim.config.files import atomic_write
from sim.config.units import human_bytes, human_seconds
from sim.results.result import Result
from sim.scenario import scenario as scenarios
from sim.scenario.setup import from_scenario
from sim.simulate import run
from sim.sweep import executors as crew
from sim.sweep import fingerprint as question
from sim.sweep.points import Point
from sim.sweep.store import Store

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]

WALL = "wall_seconds"
_METRICS = (
    "step_time", "samples_per_second", "tokens_per_second", "tokens_per_second_per_gpu", "mfu",
    "hfu", "model_tflops_per_gpu", "bubble_fraction", "straggler_seconds", "ranks", "roles",
    "operations", "events", "capacity", "fits",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One point: what to ask, and the hash of everything that its answer depends on."""

    scenario: str
    point: Point
    key: str
    samples: int = 0


def sweep(
    scenario: str,
    points: Sequence[Point],
    *,
    samples: int = 0,
    store: Path | None = None,
    jobs: int | None = None,
    cluster: str | None = None,
) -> "pd.DataFrame":
    """Simulate a scenario at every point; a table in the order of the points.

    Invalid points stay in the table with `valid` false and a `reason`. `store` keeps results, so
    that an interrupted sweep continues and a repeated one answers at once; `jobs` processes (one a
    core) or the Dask scheduler at `cluster` do the work; with `samples` so many steps with
    stragglers are drawn at every point (`sim.samples.samples`). Raises `InputError` for keys that
    do not exist and values of the wrong kind, before any work.
    """
    question.forget()
    check(scenario, points)
    tasks = [
        Task(scenario=scenario, point=p, key=question.key(scenario, p, (samples,)), samples=samples)
        for p in points
    ]
    if store is None:
        rows = _computed(tasks, {}, None, jobs, cluster)
    else:
        with Store(store) as kept:
            known = {task.key: kept.get(task.key) for task in tasks}
            found = {key: text for key, text in known.items() if text is not None}
            rows = _computed(tasks, found, kept, jobs, cluster)
    return table([(task.point, json.loads(rows[task.key])) for task in tasks])


def check(scenario: str, points: Sequence[Point]) -> None:
    """Refuse mistakes before any work: each value of each key by itself.

    What only does not fit together (sizes that do not divide) is an invalid row, not a mistake.
    """
    scenarios.load(scenario)
    for key, values in _values(points).items():
        for value in values:
            asked = scenarios.load(scenario, {key: value})
            try:
                from_scenario(asked)
            except InputError as error:
                if not _of_layout(error):
                    raise


def _values(points: Sequence[Point]) -> dict[str, list[Any]]:
    """Per key its values, of long ranges the first and the last few."""
    seen: dict[str, dict[str, Any]] = {}
    for point in points:
        for key, value in point.items():
            seen.setdefault(key, {})[repr(value)] = value
    listed = {key: list(values.values()) for key, values in seen.items()}
    return {key: v if len(v) <= 16 else [*v[:8], *v[-8:]] for key, v in listed.items()}


def _of_layout(error: InputError) -> bool:
    """Whether sizes do not fit together, rather than a key or value being no such thing."""
    return error.where.rpartition(", ")[2] in ("plan", "balance") or "GPUs" in error.what


def _computed(
    tasks: Sequence[Task],
    rows: dict[str, str],
    store: Store | None,
    jobs: int | None,
    cluster: str | None,
) -> dict[str, str]:
    """The rows of all tasks by key; new ones are stored as they come."""
    from tqdm import tqdm

    missing = list({task.key: task for task in tasks if task.key not in rows}.values())
    total = len(missing) + len(rows)
    with tqdm(total=total, initial=len(rows), unit="point", disable=None, leave=False) as bar:
        for key, text in _answers(missing, jobs, cluster):
            rows[key] = text
            if store is not None:
                store.put(key, text)
            bar.update()
    return rows


def _answers(
    tasks: Sequence[Task], jobs: int | None, cluster: str | None
) -> Iterator[tuple[str, str]]:
    if not tasks:
        return iter(())
    if cluster is None:
        remedy = "run it again; what is stored stays valid"
        return _agreeing(tasks, crew.here(answer, tasks, jobs=jobs), "sim sweep", remedy)
    answers = crew.cluster(answer, tasks, address=cluster)
    return _agreeing(tasks, answers, f"--cluster {cluster}", "install the same everywhere")


def _agreeing(
    tasks: Sequence[Task], answers: Iterator[tuple[str, str]], where: str, remedy: str
) -> Iterator[tuple[str, str]]:
    """Refuse answers to other questions: of workers that read other files or run other code."""
    asked = {task.key for task in tasks}
    for key, text in answers:
        if key not in asked:
            what = "a worker found another program or other models, topologies or scenarios"
            raise InputError(where, what, remedy)
        yield key, text


def answer(task: Task) -> tuple[str, str]:
    """Work on one task: its key, found again from what this process reads, and its row."""
    found = row(task.scenario, task.point, task.samples)
    return question.key(task.scenario, task.point, (task.samples,)), json.dumps(found)


def row(scenario: str, point: Point, samples: int = 0) -> Row:
    """Inputs and metrics of one point; `reason` says why a row is not valid."""
    asked = scenarios.load(scenario, point)
    found: Row = {"scenario": asked.name, "model": asked.model, "topology": asked.topology}
    found |= {"stack": asked.stack, **_plan(asked.plan)}
    try:
        setup = from_scenario(asked)
        found |= {"gpus": setup.machine.topology.gpus, **_plan(setup.job.plan)}
        result = run(setup)
        drawn = _drawn(asked, samples) if samples else {}
    except InputError as error:
        return {**found, "valid": False, "reason": str(error), WALL: 0.0}
    reason = "" if result.fits else _too_big(result)
    return {**found, **metrics(result), **drawn, "valid": result.fits, "reason": reason,
            WALL: result.wall_seconds}  # fmt: skip


def _drawn(asked: scenarios.Scenario, samples: int) -> Row:
    """The distribution of the step time with stragglers."""
    from sim.samples.samples import samples as draw

    found = draw(asked, samples)
    quantiles = {f"samples.p{share}": found.quantile(share / 100) for share in (50, 95, 99)}
    return {"samples.mean": found.mean, "samples.loss": found.loss, **quantiles}


def _plan(plan: Any) -> Row:
    return {f"plan.{key}": value for key, value in asdict(plan).items()}


def metrics(result: Result) -> Row:
    """The numbers of a result in flat columns; seconds by cause and bytes by part are prefixed."""
    found = {name: getattr(result, name) for name in _METRICS}
    found |= {f"seconds.{cause}": value for cause, value in result.breakdown.items()}
    return found | {f"memory.{part}": value for part, value in result.memory_per_gpu.items()}


def _too_big(result: Result) -> str:
    needed, offered = result.memory_per_gpu["total"] / 2**30, result.capacity / 2**30
    return f"takes {needed:.1f} GiB of {offered:.1f} GiB a GPU"


def table(rows: Sequence[tuple[Point, Row]]) -> "pd.DataFrame":
    """One row a point: what was varied, every input, every metric, validity, wall time."""
    import pandas as pd

    merged = [{**{key: _cell(v) for key, v in point.items()}, **_cells(found)}
              for point, found in rows]  # fmt: skip
    varied = list(dict.fromkeys(key for point, _ in rows for key in point))
    names = sorted({name for one in merged for name in one}, key=_place)
    columns = [*varied, *(name for name in names if name not in varied)]
    frame = pd.DataFrame(merged, columns=columns).rename_axis("point")
    frame.attrs["varied"] = varied
    return frame


def _cells(row: Row) -> Row:
    return {key: _cell(value) for key, value in row.items()}


def _cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | tuple | dict) else value


def _place(name: str) -> tuple[int, int, str]:
    """Inputs, metrics, seconds by cause, bytes by part, verdict, wall time; each by name."""
    if name in _METRICS:
        return 1, _METRICS.index(name), name
    prefix = name.partition(".")[0]
    groups = {"seconds": 2, "memory": 3, "samples": 4, "valid": 5, "reason": 6, WALL: 7}
    return groups.get(prefix, 0), 0, name


def write(frame: "pd.DataFrame", path: Path) -> None:
    """Write a table as .parquet or .csv, whole or not at all. Raises `InputError`."""
    writer = writers().get(path.suffix)
    if writer is None:
        raise InputError(f"--out {path}", "has an unknown ending", "end it in .csv or .parquet")
    with atomic_write(path) as part:
        writer(frame, part)


def writers() -> dict[str, Callable[["pd.DataFrame", Path], None]]:
    """Ways of writing a table by ending."""
    return {".csv": lambda frame, path: frame.to_csv(path), ".parquet": _parquet}


def _parquet(frame: "pd.DataFrame", path: Path) -> None:
    try:
        frame.to_parquet(path)
    except ImportError:
        remedy = "pip install 'clustersim[parquet]', or name a .csv file"
        raise InputError("--out", "Parquet needs pyarrow", remedy) from None


def to_dict(frame: "pd.DataFrame") -> dict[str, Any]:
    """What `--json` prints: every row, numbers that are absent left out."""
    rows = json.loads(frame.to_json(orient="records", double_precision=15))
    clean = [{key: value for key, value in one.items() if value is not None} for one in rows]
    return {"points": len(frame), "valid": int(frame["valid"].sum()), "rows": clean}


def text(frame: "pd.DataFrame") -> str:
    """What varied, and the first figures that anyone looks at."""
    ways: dict[str, Any] = {
        "step_time": human_seconds, "samples.p99": human_seconds, "mfu": "{:.1%}".format,
        "bubble_fraction": "{:.1%}".format, "memory.total": human_bytes, "reason": str,
    }  # fmt: skip
    columns = dict.fromkeys([*frame.attrs["varied"], *ways])
    found = frame[[name for name in columns if name in frame.columns]]
    shown = found.to_string(na_rep="", formatters=ways, max_colwidth=100)
    return "\n".join(line.rstrip() for line in shown.splitlines())
