"""The kind of scenarios with `[[job]]` tables: the first file to read about several jobs.

Each job is set up by its own kind (`setup`) and placed on GPUs of the cluster (`placement`,
`placed`). Each job is folded: its ranks that behave alike are simulated once (`folding`). Jobs that
meet on links are played on one clock until their step times are steady (`repeated`, `paces`).
`schedule` lets jobs come, wait and leave.
"""

import time
from collections.abc import Iterator
from dataclasses import replace
from statistics import fmean, median
from typing import Any

from sim.config.progress import waited
from sim.engine.play import Engine
from sim.engine.timeline import Role, Span, Timeline
from sim.jobs.multi_job.answer import JobRow, MultiJobAnswer, jain
from sim.jobs.multi_job.paces import Paces, SharedLink
from sim.jobs.multi_job.scenario import MultiJobScenario
from sim.jobs.multi_job.schedule import Cluster, Course, Together, Visit
from sim.jobs.multi_job.setup import MultiJobSetup, from_scenario
from sim.program.causes import COMPUTE
from sim.results.answer import Inputs
from sim.simulate import garbage_left, refuse_choices_of_a_step, refuse_task

SCENARIO, ANSWER = MultiJobScenario, MultiJobAnswer
LACKS = ("has several jobs: it has no step of its own", "ask it of each job's scenario")
_EXPLAINED = 8  # in larger companies (jobs that meet), no job's cost to the others is computed
_NOTICED = 1e-4  # a cost below this share of a step is not reported


def set_up(scenario: MultiJobScenario, *, task: Any = None, brief: bool = False) -> MultiJobSetup:
    """The cluster and its jobs. Raises `InputError`."""
    refuse_task(scenario.name, task)
    return from_scenario(scenario)


@waited("the jobs")
def answer(
    setup: MultiJobSetup, *, engine: Engine = "auto", unfold: bool = False
) -> MultiJobAnswer:
    """Play the jobs. Raises `InputError`, also for choices that only a training step has."""
    why = "jobs that meet are folded one by one and played on the clock"
    refuse_choices_of_a_step(setup.name, why, engine=engine, unfold=unfold)
    began = time.perf_counter()
    with garbage_left():
        course = Cluster(setup).course()
        return _answer(setup, course, began)


def seeded(scenario: MultiJobScenario, number: int) -> MultiJobScenario:
    """The scenario with `number` added to its seed."""
    return replace(scenario, seed=scenario.seed + number)


def _answer(setup: MultiJobSetup, course: Course, began: float) -> MultiJobAnswer:
    rows = tuple(_row(visit, course.paces) for visit in course.visits)
    slowdowns = [row.slowdown for row in rows if row.slowdown]
    endless = any(row.ended is None for row in rows)
    waits = [row.waited for row in rows if row.waited is not None]
    topology, scenario = setup.machine.topology, setup.scenario
    whole = course.end * topology.gpus
    return MultiJobAnswer(
        scenario=setup.name,
        inputs=Inputs(cluster=topology.name, device=topology.device.name, gpus=topology.gpus,
                      change=dict(scenario.change)),
        fits=_all_fit([row.fits for row in rows]),
        events=course.events,
        wall_seconds=time.perf_counter() - began,
        timeline=_timeline(course),
        straggler_seconds=sum(row.straggler_seconds for row in rows),
        jobs=rows,
        links=tuple(_links(course)),
        fairness=jain([1.0 / slowdown for slowdown in slowdowns]),
        slowdown=fmean(slowdowns) if slowdowns else None,
        makespan=None if endless else course.end,
        utilisation=course.used / whole if whole else None,
        fragmentation=course.stranded / whole if whole else None,
        waiting=_waiting(waits),
        gained=_gained(course) if scenario.offset == "best" else None,
    )  # fmt: skip


def _row(visit: Visit, paces: Paces) -> JobRow:
    """A job's figures. Its step time is the mean of all its steps, or its last pace if it has done
    no step."""
    row = JobRow(
        name=visit.name,
        scenario=visit.template.scenario.name,
        gpus=visit.template.gpus,
        nodes="",
        submitted=visit.submitted,
        begun=visit.begun,
        steps=visit.steps,
        faults=visit.faults,
        lost=visit.lost,
    )
    if visit.job is None or visit.begun is None or visit.pace is None or visit.company is None:
        return row
    at, saves = visit.pace, visit.job.saves
    return replace(
        row,
        nodes=_ranges(visit.job.place.nodes),
        ended=visit.ended,
        alone=visit.job.seconds,
        step_time=visit.trained / visit.did if visit.did else at.mean,
        spread=at.spread,
        shortest=at.low,
        longest=at.high,
        offset=_offset(visit),
        slowed_by=_slowed_by(visit, paces),
        fits=visit.job.alone.fits,
        checkpoints=visit.checkpoints,
        checkpoint_time=visit.saving / visit.checkpoints if visit.checkpoints else None,
        checkpoint_alone=saves.seconds if saves else None,
        stopped=visit.stopped,
        straggler_seconds=visit.job.alone.straggler_seconds,
    )


def _offset(visit: Visit) -> float:
    assert visit.company, "it runs"
    return visit.company.how.offsets[_names(visit.company).index(visit.name)]


def _names(company: Together) -> list[str]:
    return [act.job.name for act in company.acts]


def _slowed_by(visit: Visit, paces: Paces) -> dict[str, float]:
    """Seconds that each other job of a job's company adds to its step. They are negative if the job
    would meet the remaining jobs more often without that other job. If jobs arrive over time, the
    result is empty for a job that has ended: its last company then does not represent its steps."""
    assert visit.company is not None, "it runs"
    assert visit.pace is not None, "it runs"
    jobs, how = [act.job for act in visit.company.acts], visit.company.how
    gone = visit.ended is not None and paces.by_and_by
    if gone or not 1 < len(jobs) <= _EXPLAINED:
        return {}
    cost, place = {}, _names(visit.company).index(visit.name)
    for other, job in enumerate(jobs):
        if other == place:
            continue
        rest = [number for number in range(len(jobs)) if number != other]
        offsets = [how.offsets[n] for n in rest]
        alone = paces.company([jobs[n] for n in rest], offsets, by_means=not how.played)
        saved = visit.pace.mean - alone.paces[rest.index(place)].mean
        if abs(saved) > _NOTICED * visit.pace.mean:
            cost[job.name] = saved
    return cost


def _links(course: Course) -> Iterator[SharedLink]:
    """Yield the links of the companies in which jobs trained or wrote checkpoints last, the busiest
    first. A link of several companies has the rates of the company that loads it most."""
    links = [link for company in _companies(course) for link in company.how.links]
    busiest: dict[str, SharedLink] = {}
    for link in sorted(links, key=lambda link: link.rank):
        busiest.setdefault(link.name, link)
    yield from busiest.values()


def _companies(course: Course) -> Iterator[Together]:
    """Yield the last companies of all jobs, each once."""
    found = (company for v in course.visits for company in (v.company, v.wrote_in))
    yield from {id(company): company for company in found if company}.values()


def _all_fit(fits: list[bool | None]) -> bool | None:
    """Whether all jobs fit: False if a job does not, otherwise None if a job is unknown.

    >>> _all_fit([True, None]), _all_fit([None, False])
    (None, False)
    """
    return False if False in fits else None if None in fits else True


def _gained(course: Course) -> float:
    """How much offsets reduce the slowdowns, summed over the last companies of all jobs."""
    return sum(company.how.gained for company in _companies(course))


def _waiting(seconds: list[float]) -> dict[str, float]:
    """Mean, median and longest wait (s)."""
    if not seconds:
        return {}
    return {"mean": fmean(seconds), "median": median(seconds), "longest": max(seconds)}


def _ranges(numbers: tuple[int, ...]) -> str:
    """Sorted numbers as a text of ranges.

    >>> _ranges((0, 1, 2, 5, 7, 8))
    '0-2, 5, 7-8'
    """
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in parts)


def _timeline(course: Course) -> Timeline:
    """The timeline of the largest company's steps, as they were played."""
    companies = [visit.company for visit in course.visits if visit.company]
    if not companies:
        return Timeline(roles=(), spans=(), end=0.0)
    largest = max(companies, key=lambda company: len(company.acts))
    roles, spans = [], []
    for number, (act, steps) in enumerate(zip(largest.acts, largest.how.steps, strict=False)):
        roles.append(Role(index=number, name=act.job.name, stage=number,
                          ranks=act.visit.template.gpus, first_rank=0))  # fmt: skip
        for n, (begin, end) in enumerate(steps):
            spans.append(Span(number, "steps", f"step {n}", COMPUTE, begin, end))
    ends = [span.end for span in spans]
    return Timeline(roles=tuple(roles), spans=spans, end=max(ends, default=0.0))
