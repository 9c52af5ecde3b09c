"""Show several jobs on a cluster: steps alone and together, who slows whom, on which links."""

from collections.abc import Iterator
from itertools import pairwise

from sim.config.readable import human_rate, human_seconds
from sim.hardware.cluster.host import UNITS
from sim.interface.document.nodes import (
    Document,
    Figure,
    Figures,
    Sentence,
    document,
    section,
    table,
    warnings,
)
from sim.jobs.multi_job.answer import JobRow, MultiJobAnswer
from sim.jobs.multi_job.paces import SharedLink
from sim.results.formatting import Cells, percent, several

# The most jobs in a table, the most links in a table, and the most jobs or nodes in a cell.
_SHOWN, _LINKS, _NAMED = 24, 8, 4

_NTH = {2: "second", 3: "third", 4: "fourth"}


def view(answer: MultiJobAnswer) -> Document:
    """Show key figures, a row for each job, and the links that jobs share."""
    met = [job for job in answer.jobs if job.slowed_by]
    saving = [job for job in answer.jobs if job.checkpoint_alone is not None]
    return document(
        f"{answer.scenario}: {several(len(answer.jobs), 'job')} on {answer.inputs.gpus:,} GPUs of "
        f"{answer.inputs.cluster}",
        Figures(tuple(_figures(answer))),
        section("Jobs", table(map(_job, answer.jobs[:_SHOWN]), _JOB), _more(answer.jobs)),
        section("Checkpoints", table(map(_saved, saving[:_SHOWN]), _SAVED)) if saving else None,
        section("Who slows whom", table(_costs(met), ("job", "slowed by", "seconds of its step")))
        if met
        else None,
        section("Links on which jobs meet",
                table(map(_link, answer.links[:_LINKS]), ("link", "capacity", "in use", "by job")))
        if answer.links
        else None,
        *warnings(answer.warnings),
        line=f"{several(len(answer.jobs), 'job')}, slowdown {answer.slowdown:.3f}"
        if answer.slowdown
        else "",
    )  # fmt: skip


_JOB = ("job", "GPUs", "nodes", "step alone", "step", "slowdown", "spread", "waited", "ended")

_SAVED = ("job", "checkpoints", "each alone", "each", "slowdown", "training stopped")


def _figures(answer: MultiJobAnswer) -> Iterator[Figure]:
    if answer.slowdown is not None:
        note = "mean of the jobs: a step beside the other jobs over a step alone"
        yield Figure("slowdown", f"{answer.slowdown:.3f}", note, key="slowdown")
    if answer.fairness is not None:
        note = "Jain's index of the jobs' relative speeds"
        yield Figure("fairness", f"{answer.fairness:.3f}", note, key="fairness")
    if answer.gained is not None:
        note = "of the sum of slowdowns; offsets delay some jobs' steps"
        yield Figure("offsets save", f"{answer.gained:.3f}", note, key="gained")
    if answer.makespan is not None:
        note = "until the last job ends"
        yield Figure("makespan", human_seconds(answer.makespan), note, key="makespan")
    if answer.straggler_seconds:
        lost = human_seconds(answer.straggler_seconds)
        yield Figure("stragglers", lost, "of all jobs' steps", key="straggler_seconds")
    if answer.utilisation:
        note = "of the GPU-seconds are in use"
        if answer.fragmentation:
            note += f"; {percent(answer.fragmentation)} are idle while a job waits"
        yield Figure("utilisation", percent(answer.utilisation), note, key="utilisation")
    if answer.waiting and answer.waiting["longest"]:
        mean, median, longest = map(human_seconds, answer.waiting.values())
        note = f"on average; median {median}, longest {longest}"
        yield Figure("waiting", mean, note, key="waiting.mean")


def _job(job: JobRow) -> Cells:
    return (
        job.name,
        f"{job.gpus:,}",
        _short(job.nodes),
        _seconds(job.alone),
        _seconds(job.step_time),
        f"{job.slowdown:.3f}" if job.slowdown else "-",
        _seconds(job.spread) if job.spread else "-",
        _seconds(job.waited),
        _seconds(job.ended),
    )


def _saved(job: JobRow) -> Cells:
    alone, each = job.checkpoint_alone, job.checkpoint_time
    return (
        job.name,
        f"{job.checkpoints:,}",
        _seconds(alone),
        _seconds(each),
        f"{each / alone:.3f}" if each and alone else "-",
        human_seconds(job.stopped),
    )


def _short(nodes: str) -> str:
    """Return the nodes of a job; a long list is shortened to its stride, or to its ends.

    >>> _short("0, 2, 4, 6, 8"), _short("0-1, 4-5, 8-9, 12-13, 16-17")
    ('every second from 0 to 8', '0-1, ..., 16-17')
    """
    parts = nodes.split(", ")
    if len(parts) <= _NAMED:
        return nodes or "-"
    if all(part.isdecimal() for part in parts):
        steps = {int(b) - int(a) for a, b in pairwise(parts)}
        if len(steps) == 1:
            step = steps.pop()
            return f"every {_NTH.get(step, f'{step}th')} from {parts[0]} to {parts[-1]}"
    return f"{parts[0]}, ..., {parts[-1]}"


def _more(jobs: tuple[JobRow, ...]) -> Sentence | None:
    """Say how many jobs have no row."""
    left = len(jobs) - _SHOWN
    return Sentence(f"{left:,} more in --json") if left > 0 else None


def _costs(jobs: list[JobRow]) -> Iterator[Cells]:
    for job in jobs:
        for other, seconds in sorted(job.slowed_by.items(), key=lambda item: -item[1]):
            yield job.name, other, human_seconds(seconds)


def _link(link: SharedLink) -> Cells:
    heavy = sorted(link.rates.items(), key=lambda item: -item[1])
    unit = UNITS.get(link.name.rpartition(".")[2], "B/s")
    rates = ", ".join(f"{name} {human_rate(rate, unit)}" for name, rate in heavy[:_NAMED])
    if len(heavy) > _NAMED:
        rates += f" and {len(heavy) - _NAMED} more"
    return link.name, human_rate(link.capacity, unit), percent(link.busy), rates


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else human_seconds(seconds)
