"""Laws that several jobs on one cluster obey together."""

import random
from collections.abc import Sequence
from functools import partial
from typing import Any
from unittest import mock

from sim import run
from sim.engine.fold import Folding
from sim.engine.play import play
from sim.jobs.multi_job import folding, mean_traffic
from sim.jobs.multi_job.answer import JobRow, MultiJobAnswer
from sim.jobs.multi_job.paces import SharedLink
from tests.campaign.features import Document
from tests.campaign.job import SAME, Job, same

COMPANIES = ("companies",)
_WITHIN = ([0, 1], [3, 4], [6, 7])  # two nodes of a pod


def _rows(job: Job) -> dict[str, JobRow]:
    return {row.name: row for row in job.result().jobs}


def _with(job: Job, jobs: Sequence[Document], **more: Any) -> Job:
    return Job(job.kind, job.document | {"job": list(jobs)} | more)


def _alike(one: dict[str, JobRow], other: dict[str, JobRow]) -> str:
    """What two companies say differently of the jobs that both have."""
    said = [
        f"{name}, {key}: {why}"
        for name in one.keys() & other.keys()
        for key in ("step_time", "checkpoint_time", "stopped")
        if (why := same(getattr(one[name], key) or 0.0, getattr(other[name], key) or 0.0))
    ]
    return "; ".join(said)


def apart(job: Job, chance: random.Random) -> str:
    """Jobs on links of their own are as alone: pods and stores of their own."""
    store = job.document["change"] | {"storage": job.document["change"]["storage"] | {"nodes": 3}}
    jobs = [
        own | {"nodes": nodes, "steps": 80}  # as many checkpoints, whoever is there
        for own, nodes in zip(job.document["job"], _WITHIN, strict=False)
    ]
    both = _rows(_with(job, jobs, change=store))
    each = [_rows(_with(job, [own], change=store)) for own in jobs]
    found = (_as_alone(one, both) for one in each)
    return "; ".join(filter(None, found))


def _as_alone(one: dict[str, JobRow], both: dict[str, JobRow]) -> str:
    (row,) = one.values()
    beside = both[row.name]
    if beside.alone != row.alone:
        return f"{row.name} alone: {row.alone!r} and {beside.alone!r}"
    said = same(row.step_time or 0.0, beside.step_time or 0.0)
    return said or same(row.checkpoint_time or 0.0, beside.checkpoint_time or 0.0)


def idle(job: Job, chance: random.Random) -> str:
    """A job that sends nothing beyond its node changes nothing."""
    own = {"model": "llama3-8b", "gpus": 8, "plan": {"tp": 8, "global_batch": 4}}
    quiet = {"scenario": own, "nodes": [8], "name": "quiet", "set": {"model.layers": 2}}
    with_it = _with(job, [*job.document["job"], quiet])
    return _alike(_rows(job), _rows(with_it))


def _saving(job: Job) -> bool:
    """Whether jobs write checkpoints, of which a job without them waits for the mean number."""
    return any("checkpoints" in own["scenario"] for own in job.document["job"])


def not_faster(job: Job, chance: random.Random) -> str:
    """Nobody gains by company: no step and no checkpoint is faster than alone."""
    said = []
    for name, row in _rows(job).items():
        for found, alone in ((row.shortest, row.alone), (row.step_time, row.alone),
                             (row.checkpoint_time, row.checkpoint_alone)):  # fmt: skip
            if found and alone and found < alone * (1.0 - SAME):
                said.append(f"{name}: {found!r} in company, {alone!r} alone")
    return "; ".join(said)


def one_more(job: Job, chance: random.Random) -> str:
    """Offsets apart, a further job on the same links speeds up nobody."""
    jobs = [_endless(own) for own in job.document["job"]]
    few, all_ = (
        _rows(_with(job, jobs[:count], policy="fifo", horizon="60 s"))
        for count in (len(jobs) - 1, len(jobs))
    )
    return "; ".join(
        f"{name}: {all_[name].step_time!r} with one more, {row.step_time!r} without"
        for name, row in few.items()
        if (all_[name].step_time or 0.0) < (row.step_time or 0.0) * (1.0 - SAME)
    )


def _endless(own: Document) -> Document:
    """As a job that comes by and by, in a phase that nobody knows."""
    scenario = {k: v for k, v in own["scenario"].items() if k not in ("checkpoints", "loader")}
    return own | {"scenario": scenario, "start": "0 s", "steps": 10**6, "every": "1 s"}


def in_any_order(job: Job, chance: random.Random) -> str:
    """The order of jobs in the file says nothing."""
    jobs = list(job.document["job"])
    chance.shuffle(jobs)
    return _alike(_rows(job), _rows(_with(job, jobs)))


def unfolded(job: Job, chance: random.Random) -> str:
    """Folded jobs are as fast as jobs played rank by rank, on one clock and in the mean."""
    whole = partial(Folding, unfold=True)
    with (
        mock.patch.object(folding, "Folding", whole),
        mock.patch.object(mean_traffic, "Folding", whole),
        mock.patch.object(mean_traffic, "play", partial(play, unfold=True)),
    ):
        every = [
            {row.name: row for row in run(each.write()).jobs} for each in (job, _in_the_mean(job))
        ]
    return _alike(_rows(job), every[0]) or _alike(_rows(_in_the_mean(job)), every[1])


def _in_the_mean(job: Job) -> Job:
    """Its jobs without end, which come by and by: in the mean over all phases."""
    jobs = [_endless(own) for own in job.document["job"]]
    return _with(job, jobs, policy="fifo", horizon="60 s")


def loads(job: Job, chance: random.Random) -> str:
    """A link carries at most what it can, and of each job the bytes of its step, whoever is there:
    those that its folded program says without company."""
    at_once = [own | {"start": "0 s"} for own in job.document["job"]]  # one company to the end
    exact: MultiJobAnswer = _with(job, at_once).result()
    means: MultiJobAnswer = _in_the_mean(job).result()
    counted = int(job.document["steady"])
    for link in exact.links:
        if link.busy > 1.0 + 1e-6 + _at_the_ends(link, exact, counted):
            return f"{link.name} carries {link.busy!r} of what it can"
    if _saving(job) or any("loader" in own["scenario"] for own in job.document["job"]):
        return ""
    sizes = [_bytes(answer) for answer in (exact, means)]
    if missing := sizes[0].keys() - sizes[1].keys():
        return f"in the mean {min(missing)} is loaded by nobody"
    pairs = (same(*(size[key] for size in sizes)) for key in sorted(sizes[0]))
    return "; ".join(filter(None, pairs))


def _at_the_ends(link: SharedLink, answer: MultiJobAnswer, counted: int) -> float:
    """How far means over so many steps may differ: in the window of the longest steps stand a whole
    number of them, and of the steps of each other job any number, of which a part of one is cut."""
    steps = {row.name: row.step_time or 0.0 for row in answer.jobs}
    sent = {name: rate * steps[name] for name, rate in link.rates.items() if name in steps}
    if not sent:  # of jobs that have ended
        return 0.0
    longest = max(sent, key=lambda name: steps[name])
    others = sum(size for name, size in sent.items() if name != longest)
    return others / (link.capacity * counted * steps[longest])


def _bytes(answer: MultiJobAnswer) -> dict[tuple[str, str], float]:
    """Bytes of a step by link and job."""
    steps = {row.name: row.step_time or 0.0 for row in answer.jobs}
    return {
        (link.name, name): rate * steps[name]
        for link in answer.links
        for name, rate in link.rates.items()
        if name in steps
    }


LAWS = {
    "jobs on links of their own are as alone": (COMPANIES, apart),
    "a job that sends nothing is not noticed": (COMPANIES, idle),
    "no company makes a job faster": (COMPANIES, not_faster),
    "one more job speeds up nobody": (COMPANIES, one_more),
    "jobs stand in any order": (COMPANIES, in_any_order),
    "jobs folded equal jobs unfolded": (COMPANIES, unfolded),
    "loads of jobs add up": (COMPANIES, loads),
}
