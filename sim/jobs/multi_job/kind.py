"""The kind of scenarios with `[[job]]` tables: the first file to read of such jobs.

Each job is set up by its own kind (`setup`) and placed on GPUs of the cluster (`placement`,
`placed`). Jobs that meet on links are folded apart and played on one clock (`folding`, `repeated`),
until their steps are steady (`paces`). `schedule` lets jobs come, wait and leave.
"""

import time
from collections.abc import Iterator
from dataclasses import replace
from statistics import fmean, median
from typing import Any

from sim.engine.play import Engine
from sim.engine.timeline import Role, Span, Timeline
from sim.jobs.multi_job.answer import JobRow, MultiJobAnswer, jain
from sim.jobs.multi_job.paces import Paces, SharedLink
from sim.jobs.multi_job.scenario import MultiJobScenario
from sim.jobs.multi_job.schedule import Cluster, Course, Visit
from sim.jobs.multi_job.setup import MultiJobSetup, from_scenario
from sim.program.causes import COMPUTE
from sim.results.answer import Inputs
from sim.simulate import garbage_left, refuse_choices_of_a_step, refuse_task

__all__ = ["ANSWER", "LACKS", "SCENARIO", "answer", "effort", "seeded", "set_up"]

SCENARIO, ANSWER = MultiJobScenario, MultiJobAnswer
LACKS = ("has several jobs: it has no step of its own", "ask it of each job's scenario")
_OF_JOB = 0.1  # s of one core
_EXPLAINED = 8  # jobs that meet, of which each is left out in turn


def set_up(scenario: MultiJobScenario, *, task: Any = None, brief: bool = False) -> MultiJobSetup:
    """The cluster and its jobs. Raises `InputError`."""
    refuse_task(scenario.name, task)
    return from_scenario(scenario)


def answer(
    setup: MultiJobSetup, *, engine: Engine = "auto", unfold: bool = False
) -> MultiJobAnswer:
    """The course of the jobs. Raises `InputError`, also for choices that only a step alone has."""
    why = "jobs that meet are folded apart and played on the clock"
    refuse_choices_of_a_step(setup.name, why, engine=engine, unfold=unfold)
    began = time.perf_counter()
    with garbage_left():
        course = Cluster(setup).course()
        return _answer(setup, course, began)


def effort(setup: MultiJobSetup) -> float:
    """Seconds of one core, by their order of magnitude."""
    return _OF_JOB * sum(template.table.copies for template in setup.templates)


def seeded(scenario: MultiJobScenario, number: int) -> MultiJobScenario:
    """The scenario with the seed that comes so many behind its own."""
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
    """A job's figures: where it has ended, the mean of all its steps, else its last pace."""
    row = JobRow(
        name=visit.name,
        scenario=visit.template.scenario.name,
        gpus=visit.template.gpus,
        nodes="",
        submitted=visit.submitted,
    )
    if visit.job is None or visit.begun is None or visit.pace is None or visit.company is None:
        return replace(row, begun=visit.begun, steps=visit.steps, faults=visit.faults,
                       lost=visit.lost)  # fmt: skip
    ended, at = visit.ended, visit.pace
    return replace(
        row,
        nodes=_ranges(visit.job.place.nodes),
        begun=visit.begun,
        ended=ended,
        steps=visit.steps,
        alone=visit.job.seconds,
        step_time=at.mean if ended is None else visit.trained / visit.did,
        spread=at.spread,
        shortest=at.low,
        longest=at.high,
        offset=_offset(visit),
        slowed_by=_slowed_by(visit, paces),
        fits=visit.job.answer.fits,
        faults=visit.faults,
        lost=visit.lost,
    )


def _offset(visit: Visit) -> float:
    assert visit.company, "it runs"
    return visit.company.how.offsets[visit.company.visits.index(visit)]


def _slowed_by(visit: Visit, paces: Paces) -> dict[str, float]:
    """Seconds of a step that each other job of its company costs it: without that job, its step
    would be so much shorter."""
    assert visit.company is not None, "it runs"
    assert visit.pace is not None, "it runs"
    visits, how = visit.company.visits, visit.company.how
    if not 1 < len(visits) <= _EXPLAINED:
        return {}
    cost = {}
    for other in visits:
        if other is visit:
            continue
        rest = [v for v in visits if v is not other]
        offsets = [how.offsets[visits.index(v)] for v in rest]
        jobs = [v.job for v in rest if v.job]
        without = paces.company(jobs, offsets).paces[rest.index(visit)]
        saved = visit.pace.mean - without.mean
        if abs(saved) > 1e-9 * visit.pace.mean:
            cost[other.name] = saved
    return cost


def _links(course: Course) -> Iterator[SharedLink]:
    """The links of all companies of the last jobs, the busiest first."""
    companies = {id(v.company): v.company for v in course.visits if v.company}
    links = [link for company in companies.values() for link in company.how.links]
    yield from sorted(links, key=lambda link: link.rank)


def _all_fit(fits: list[bool | None]) -> bool | None:
    """Whether all jobs fit: None where some is unknown and none does not.

    >>> _all_fit([True, None]), _all_fit([None, False])
    (None, False)
    """
    return False if False in fits else None if None in fits else True


def _gained(course: Course) -> float:
    """The sum over all companies of what offsets save."""
    companies = {id(v.company): v.company for v in course.visits if v.company}
    return sum(company.how.gained for company in companies.values())


def _waiting(seconds: list[float]) -> dict[str, float]:
    """Mean, median and longest wait (s)."""
    if not seconds:
        return {}
    return {"mean": fmean(seconds), "median": median(seconds), "longest": max(seconds)}


def _ranges(numbers: tuple[int, ...]) -> str:
    """Sorted numbers as ranges.

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
    """The steps of the largest company, as they were played."""
    companies = [visit.company for visit in course.visits if visit.company]
    if not companies:
        return Timeline(roles=(), spans=(), end=0.0)
    largest = max(companies, key=lambda company: len(company.visits))
    roles, spans = [], []
    for number, (visit, steps) in enumerate(zip(largest.visits, largest.how.steps, strict=False)):
        roles.append(Role(index=number, name=visit.name, stage=number,
                          ranks=visit.template.gpus, first_rank=0))  # fmt: skip
        for n, (begin, end) in enumerate(steps):
            spans.append(Span(number, "steps", f"step {n}", COMPUTE, begin, end))
    ends = [span.end for span in spans]
    return Timeline(roles=tuple(roles), spans=spans, end=max(ends, default=0.0))
