"""The cases of a comparison: scenarios with their own settings, and stored results."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from sim import kind, questions
from sim.analysis.comparison.stored import stored
from sim.analysis.samples.seeds import samples
from sim.config.counting import counted
from sim.config.dataclass import dataclass
from sim.config.errors import InputError
from sim.config.stopping import so_far
from sim.parallel.plan import Plan
from sim.results.answer import JobAnswer
from sim.scenario.scenario import BaseScenario
from sim.scenario.settings import settings_of

Job = str | os.PathLike[str] | BaseScenario | JobAnswer

_LONGEST = 48  # characters of a name in heads of tables and in titles
_GRAMMAR = "write NAME, 'NAME: KEY=VALUE; KEY=VALUE', ': KEY=VALUE' (the first NAME) or FILE.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A job of a comparison. `rent` (USD/h) is for all devices, if the topology has a price.
    `asked` is the full text of a shortened name. `runs` has a run for each of several seeds."""

    name: str
    result: JobAnswer
    rent: float | None = None
    asked: str = ""
    runs: tuple[JobAnswer, ...] = ()

    def dollars(self, seconds: float) -> float | None:
        """Return the rent for a number of seconds."""
        return None if self.rent is None else self.rent * seconds / 3600.0


class Prepared(NamedTuple):
    """A job that is read and set up: the class of its answer (`gives`), and functions for its
    `answer` and for the `runs` of several seeds. `rent` is as in a `Case`."""

    name: str
    gives: type[JobAnswer]
    answer: Callable[[], JobAnswer]
    rent: float | None = None
    runs: Callable[[int], tuple[JobAnswer, ...]] | None = None


def prepared(
    jobs: Iterable[Job] | Mapping[str, Job],
    settings: Mapping[str, Any] | None = None,
    task: Any = None,
) -> list[Prepared]:
    """Read and set up all jobs of a comparison, before any is simulated. Raises `InputError`.

    A job is a text `NAME` (or a path), or `NAME: KEY=VALUE; KEY=VALUE`, whose settings hold for
    this job only. The text `: KEY=VALUE` repeats the first job with other settings. The path of a
    .json file is a stored result. `settings`, and the learning `task`, hold for all scenarios.
    """
    named = list(jobs.items()) if isinstance(jobs, Mapping) else [(None, job) for job in jobs]
    found = list(_read_all(named, settings or {}, task))
    if len(found) < 2:
        raise InputError("compare", f"{len(found)} to compare", f"give two or more; {_GRAMMAR}")
    return found


def cases(jobs: Sequence[Prepared], seeds: int = 1) -> tuple[Case, ...]:
    """Simulate the jobs that are not stored results, once with each seed. Raises `InputError` if
    there are several `seeds`, but a job draws no random numbers."""
    answers = (_case(job, seeds) for job in jobs)
    found = list(counted(so_far(answers, least=2), total=len(jobs), unit="job"))
    return tuple(_told_apart(_short(found)))


def _case(job: Prepared, seeds: int) -> Case:
    if seeds == 1:
        return Case(name=job.name, result=job.answer(), rent=job.rent)
    if job.runs is None:
        raise InputError("--seeds", f"{job.name} draws no random numbers", "leave it out")
    runs = job.runs(seeds)
    return Case(name=job.name, result=runs[0], rent=job.rent, runs=runs)


def _read_all(
    named: Iterable[tuple[str | None, Job]], settings: Mapping[str, Any], task: Any
) -> Iterator[Prepared]:
    first: _First = ""
    for name, job in named:
        if isinstance(job, str | os.PathLike):
            default_name, job, first = _read(os.fspath(job), first, settings)
            name = name or default_name
        elif isinstance(job, BaseScenario):
            job = kind.load(job, settings)
        if isinstance(job, BaseScenario | JobAnswer):
            first = first or job
        yield _prepared(name, job, task)


_First = str | BaseScenario | JobAnswer


def _read(
    text: str, first: _First, settings: Mapping[str, Any]
) -> tuple[str, BaseScenario | JobAnswer, _First]:
    """Return a text's name, its job, and the scenario to which a later `: KEY=VALUE` refers."""
    head, colon, changes = (part.strip() for part in text.partition(":"))
    if head.endswith(".json"):
        if colon or settings:
            fault = "a stored result takes no settings"
            raise InputError(text, fault, "name its scenario instead")
        answer = stored(Path(head))
        return Path(head).stem, answer, first or answer
    if not (head or first) or (colon and not changes) or "=" in head:
        raise InputError(f"compare {text!r}", "names no job", _GRAMMAR)
    given = [part.strip() for part in changes.split(";") if part.strip()]
    merged = {**settings, **settings_of(given)}
    if head:
        return text.strip(), kind.load(head, merged), first or head
    job = _job_of(first) if isinstance(first, JobAnswer) else first
    return changes, kind.load(job, merged), first


def _job_of(answer: JobAnswer) -> BaseScenario:
    """Return the scenario of an answer. Raises `InputError` if its inputs have changed."""
    inputs = answer.inputs
    known = Plan.__dataclass_fields__.keys() - {"dp"}
    plan = {key: value for key, value in inputs.plan.items() if key in known}
    given = {"plan": plan} if plan else {}
    job = kind.load(answer.scenario, {"gpus": inputs.gpus, **given, **inputs.change})
    again = kind.answer(kind.set_up(job)).inputs
    for key in ("model", "cluster", "device", "stack", "precision", "plan"):
        if getattr(again, key) != getattr(inputs, key):
            fault = f"was run with another {key} than the scenario {answer.scenario} has now"
            raise InputError(answer.scenario, fault, "name the scenario with its settings")
    return job


def _prepared(name: str | None, job: Any, task: Any) -> Prepared:
    if isinstance(job, JobAnswer):
        return Prepared(name or job.title, type(job), lambda: job)
    if not isinstance(job, BaseScenario):
        fault = f"a {type(job).__name__} is no job"
        raise InputError("compare", fault, "give names, scenarios or results")
    setup, gives = kind.set_up(job, task=task), questions.answer_of(job)
    topology = setup.machine.topology
    rent = topology.gpus * topology.price.hour if topology.price else None
    runs = None if questions.seeds(job) is None else partial(_seeded, job, task)
    return Prepared(name or job.name, gives, partial(kind.answer, setup), rent, runs)


def _seeded(job: BaseScenario, task: Any, seeds: int) -> tuple[JobAnswer, ...]:
    """Return the runs of the first seeds; all jobs draw from the same seeds."""
    return samples(questions.seeds(job) or iter(()), seeds, task=task).runs


def _short(found: list[Case]) -> list[Case]:
    """Replace a name that is too long for the head of a column by the job's number in the list."""
    return [
        replace(case, name=f"job {place}", asked=case.name) if len(case.name) > _LONGEST else case
        for place, case in enumerate(found, 1)
    ]


def _told_apart(found: list[Case]) -> Iterator[Case]:
    """Yield the cases; names that occur twice get numbers."""
    count = Counter(case.name for case in found)
    seen: Counter[str] = Counter()
    for case in found:
        seen[case.name] += 1
        again = count[case.name] > 1
        yield replace(case, name=f"{case.name} ({seen[case.name]})") if again else case
