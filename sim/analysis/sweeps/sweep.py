"""Sweeps: one scenario is played with many values, and each point is a row of a tidy table.

A row becomes plain JSON where it is computed: in this process, in another process or on a cluster,
now or in an interrupted sweep. So equal questions have rows of equal bytes everywhere (except
`wall_seconds`, which is no part of the answer).
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from itertools import chain, islice
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim import kind, questions
from sim.analysis import executors
from sim.analysis.program_version import program_version
from sim.analysis.samples.samples import drawn
from sim.analysis.sweeps.points import Point
from sim.analysis.sweeps.store import Store
from sim.analysis.sweeps.table import WALL, Row, table, with_differences
from sim.config import limit, reads
from sim.config.counting import counted
from sim.config.dataclass import dataclass
from sim.config.errors import InputError, UnknownNameError
from sim.config.faults import UnsuitedError
from sim.config.reads import joined
from sim.config.stopping import so_far
from sim.results.answer import Figures
from sim.scenario.scenario import BaseScenario
from sim.scenario.settings import FILES, head_of

if TYPE_CHECKING:
    import pandas as pd

_OF_POINT = 0.01  # s that the fastest point takes
_TRIED = 64  # for each value, the most points that are checked in search of one without mistakes
_TOGETHER = 128  # the most points that are played together
_FIRST = 4  # points that this process plays; their time decides whether to start processes
_FEW = 32  # points for each process; their time decides how the other points are divided
_START = 2.0  # s that processes take to start; they must save more
_UNSEEN = 2.0  # s of work of a process that are lost at most if a sweep is killed
_SHARES = 2  # tasks for each process, to keep all processes busy until the end

Answer = tuple[str, str, reads.Reads]  # the key of a point, its row, and the files read for it


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepTask:
    """Points to simulate, each with the hash of its question."""

    scenario: str | BaseScenario
    points: Sequence[tuple[str, Point]]
    samples: int = 0


def sweep(
    scenario: str | BaseScenario,
    points: Sequence[Point],
    *,
    always: Point | None = None,
    samples: int = 0,
    store: Path | None = None,
    jobs: executors.Jobs = None,
) -> "pd.DataFrame":
    """Simulate a scenario at every point, with the values of `always` at all points. Return a
    table in the order of the points.

    Invalid points stay in the table with `valid` false and a `reason`. `store` keeps results, so an
    interrupted sweep continues, and a repeated sweep answers at once. `jobs` is a number of
    processes (default: one per core) or the address of a Dask scheduler. With `samples`, that many
    steps with stragglers, or runs with different seeds, are drawn at every point
    (`analysis.samples`). The table's attribute `damaged` counts stored rows that were computed
    again because the disk has spoiled them. Raises `InputError` for keys that do not exist and
    values of the wrong kind, before any work.
    """
    limit.refuse_long("sim sweep", f"{len(points):,} points", len(points) * _OF_POINT)
    asked = [{**(always or {}), **point} for point in points]
    check(scenario, asked, always or {})
    keys = [fingerprint(scenario, point, (samples,)) for point in asked]
    compute = partial(_computed, scenario, dict(zip(keys, asked, strict=True)), samples, jobs)
    damaged = 0
    if store is None:
        rows = compute({}, None)
    else:
        with Store(store) as results:
            stored = {key: text for key in keys if (text := results.get(key)) is not None}
            rows = compute(stored, results)
            damaged = results.damaged
    found = [
        (point, json.loads(rows[key]))
        for point, key in zip(points, keys, strict=True)
        if key in rows  # every key, unless the sweep was stopped
    ]
    frame = with_differences(table(found)) if samples else table(found)
    frame.attrs["damaged"] = damaged
    return frame


def check(scenario: str | BaseScenario, points: Sequence[Point], always: Point) -> None:
    """Refuse mistakes before any work: values that are wrong at every point that has them.

    Sizes that do not divide are no mistake; such a point becomes an invalid row. So does a point
    with a value that its table refuses, if another point is right.
    """
    at_all_points(scenario, points, always)
    right: set[tuple[str, str]] = set()
    unsuited: InputError | None = None
    for pair in _values(points):
        if pair in right:
            continue
        key, value = pair
        wrong = None
        for point in islice((point for point in points if repr(point.get(key)) == value), _TRIED):
            wrong = _mistake(scenario, point)
            if wrong is None:
                right |= {(name, repr(entry)) for name, entry in point.items()}
                break
        if isinstance(wrong, UnsuitedError):
            unsuited = unsuited or wrong
        elif wrong is not None:
            raise wrong
    if unsuited is not None and not right:
        raise unsuited


def at_all_points(
    scenario: str | BaseScenario, points: Sequence[Point], always: Point
) -> BaseScenario:
    """Return the scenario with the values of `always`. If it is incomplete without a value that
    points set, add the values of the first point. Raises `InputError`."""
    try:
        return kind.load(scenario, always)
    except InputError:
        if not points:
            raise
    return kind.load(scenario, {**always, **points[0]})


def _mistake(scenario: str | BaseScenario, point: Point) -> InputError | None:
    """Return the mistake in a point; None if there is none, or if its values are right one by one
    and do not suit one another."""
    try:
        loaded = _loaded(scenario, point)
    except InputError as error:
        return error
    try:
        kind.set_up(loaded, brief=True)
    except InputError as error:
        return None if _of_values_together(error, loaded.name) else error
    return None


def _values(points: Sequence[Point]) -> list[tuple[str, str]]:
    """Return pairs of a key and a value; of more than 16 values, the first and the last eight."""
    distinct: dict[str, dict[str, None]] = {}
    for point in points:
        for key, value in point.items():
            distinct.setdefault(key, {})[repr(value)] = None
    listed = {key: list(values) for key, values in distinct.items()}
    few = {key: v if len(v) <= 16 else [*v[:8], *v[-8:]] for key, v in listed.items()}
    return [(key, value) for key, values in few.items() for value in values]


def _of_values_together(error: InputError, name: str) -> bool:
    """Return whether an error says that values of the scenario `name` do not fit together. Other
    errors concern unknown names and keys, and values of other files."""
    head, tail = error.where.partition(", ")[0], error.where.rpartition(", ")[2]
    of_scenario = head == name or tail in ("plan", "balance") or "GPUs" in error.what
    return of_scenario and not isinstance(error, UnknownNameError)


def _computed(
    scenario: str | BaseScenario,
    points: Mapping[str, Point],
    samples: int,
    jobs: executors.Jobs,
    rows: dict[str, str],
    store: Store | None,
) -> dict[str, str]:
    """Return the rows of all points by key. Each new row is stored at once."""
    missing = [(key, point) for key, point in points.items() if key not in rows]
    total, done = len(missing) + len(rows), len(rows)
    fresh = so_far(_new_rows(partial(SweepTask, scenario=scenario, samples=samples), missing, jobs))
    for key, text, seen in counted(fresh, total=total, unit="point", done=done):
        rows[key] = text
        if store is not None:
            store.put(key, text, seen)
    return rows


def _new_rows(
    task: Callable[..., SweepTask], points: Sequence[tuple[str, Point]], jobs: executors.Jobs
) -> Iterator[Answer]:
    """Yield rows as they are found: first the row of one point, then the rows of more and more
    points. The time of earlier points decides how many points a task may have. It also decides
    whether this process plays the next points itself, because starting others would cost more.
    Raises `InputError` if workers read other files."""
    count = jobs if isinstance(jobs, int) else executors.cores()
    each = 0.0
    for number in (1, _FIRST, _FEW * count, len(points)):
        if number == _FIRST and (isinstance(jobs, str) or each * _FIRST > _START):
            continue  # processes are worth their start, even if imports made the first point slow
        part, points = points[:number], points[number:]
        if not part:
            return
        most = int(_UNSEEN / each) if each else 1
        size = max(1, min(_TOGETHER, most, -(-len(part) // (_SHARES * count))))
        starts, began = range(0, len(part), size), time.perf_counter()
        tasks = [task(points=part[first : first + size]) for first in starts]
        saved = each * (len(part) + len(points)) * (1.0 - 1.0 / count)  # s, by other processes
        alone = number == _FIRST or (not isinstance(jobs, str) and saved < _START)
        yield from _of_tasks(tasks, 1 if alone else jobs)
        each = (time.perf_counter() - began) / len(part)


def _of_tasks(tasks: Sequence[SweepTask], jobs: executors.Jobs) -> Iterator[Answer]:
    if not tasks:
        return
    keys = {key for task in tasks for key, _ in task.points}
    held: dict[tuple[tuple[str, str], str], bool] = {}
    for key, text, seen in chain.from_iterable(executors.answers(answers, tasks, jobs)):
        held |= {file: reads.holds(dict([file])) for file in seen.items() if file not in held}
        if key not in keys or not all(held[file] for file in seen.items()):
            fault = "a worker has another program, or other models, topologies or scenarios"
            remedy = "run the sweep again; stored results stay valid"
            if isinstance(jobs, str):
                remedy = "install the same program and files everywhere"
            raise InputError("sim sweep", fault, remedy)
        yield key, text, seen


def answers(task: SweepTask) -> list[Answer]:
    """Return, for each point of a task, its key as this process computes it, its row, and the
    inputs that were read."""
    with reads.at_once():
        points = [_Asked(task.scenario, point, task.samples) for _, point in task.points]
    with reads.recorded() as together:
        ready = [point for point in points if point.setup is not None and point.seeds is None]
        setups = [point.setup for point in ready if point.setup is not None]
        found = dict(zip(map(id, ready), questions.figures(setups), strict=True))
    return [
        (
            fingerprint(task.scenario, point.point, (task.samples,)),
            json.dumps(point.row(point.seeds or found.get(id(point)))),
            point.reads | (together if point.setup else {}),
        )
        for point in points
    ]


def _loaded(scenario: str | BaseScenario, point: Point) -> BaseScenario:
    """Return the scenario at a point. Points that differ only in values of the files that the
    scenario names share a loaded scenario."""
    of_files = {key: value for key, value in point.items() if "." in key and head_of(key) in FILES}
    rest = {key: value for key, value in point.items() if key not in of_files}
    return kind.load(_without_changes(scenario, rest), of_files)


@reads.kept(4, key=lambda scenario, point: (scenario, repr(point)))
def _without_changes(scenario: str | BaseScenario, point: Point) -> BaseScenario:
    return kind.load(scenario, point)


class _Asked:
    """A point with its setup or its fault, the cells that describe it, and the inputs that were
    read."""

    def __init__(self, scenario: str | BaseScenario, point: Point, samples: int) -> None:
        self.point, self.setup, self.fault = point, None, ""
        self.seeds: Figures | None = None
        self.inputs: dict[str, Any] = {}
        with reads.recorded() as self.reads:
            try:
                job = _loaded(scenario, point)
            except UnsuitedError as error:
                self.fault = str(error)
                return
            self.inputs |= job.columns
            try:
                self.setup = kind.set_up(job, brief=True)
                self.inputs |= self.setup.columns
                answer = drawn(job, samples) if samples else None
                self.drawn = {} if answer is None else answer.columns
                if answer is not None and answer.get("runs"):  # the row has the means of these runs
                    seconds = answer.get("wall_seconds")
                    self.seeds = Figures(self.drawn, answer.misfit, seconds)
            except InputError as error:
                self.setup, self.fault = None, str(error)

    def row(self, found: Figures | InputError | None) -> Row:
        """Return the point's inputs and figures; `reason` says why a row is not valid."""
        if found is None or isinstance(found, InputError):
            reason = self.fault if found is None else str(found)
            return {**self.inputs, "valid": False, "reason": reason, WALL: 0.0}
        valid = {"valid": not found.misfit, "reason": found.misfit, WALL: found.wall_seconds}
        return {**self.inputs, **found.columns, **self.drawn, **valid}


def fingerprint(scenario: str | BaseScenario, point: Point, extra: tuple[Any, ...] = ()) -> str:
    """Return the hash of a question: a scenario by name or by all its values, a point, and the
    program's version.

    The contents of files are not part of the hash, because the files are known only when the
    question has been answered (`sim.config.reads`).
    """
    named = scenario if isinstance(scenario, str) else dumps(_told(scenario), sort_keys=True)
    asked = dumps([_told(point), extra], sort_keys=True)
    return joined([program_version(), named, asked])


def _told(value: Any) -> Any:
    """Return a value as plain data, with the class of each dataclass. Raises `InputError` for an
    object that cannot be told apart from others of its class."""
    if is_dataclass(value) and not isinstance(value, type):
        values = {key.name: _told(getattr(value, key.name)) for key in fields(value)}
        return [type(value).__qualname__, values]
    if isinstance(value, Mapping):
        return {str(name): _told(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_told(entry) for entry in value]
    if value is None or isinstance(value, str | int | float):
        return value
    if hasattr(value, "tolist"):  # a number or array of numpy
        return value.tolist()
    fault = f"two objects of class {type(value).__name__} cannot be told apart"
    raise InputError("sim sweep", fault, "describe the scenario by files, or by objects of sim")
