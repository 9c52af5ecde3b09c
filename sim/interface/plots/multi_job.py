"""Draw several jobs on a cluster: each step beside other jobs and alone, and steps over time."""

from sim.interface.plots.picture import PALETTE, Figure
from sim.jobs.multi_job.answer import MultiJobAnswer
from sim.results.formatting import time_unit

_ROWS = 32  # jobs that have a bar


def figure(answer: MultiJobAnswer) -> Figure:
    """Draw a bar for each job's step on the left, with its step alone in front. On the right, draw
    the begin and end of steps of jobs that share links."""
    jobs = [job for job in answer.jobs if job.step_time and job.alone][:_ROWS]
    fig = Figure(figsize=(12.0, 1.9 + 0.3 * max(len(jobs), 2)), layout="constrained")
    left, right = fig.subplots(1, 2)
    unit, name = time_unit(max((job.step_time or 0.0 for job in jobs), default=1.0))
    rows = range(len(jobs))
    steps = [(job.step_time or 0.0) / unit for job in jobs]
    alone = [(job.alone or 0.0) / unit for job in jobs]
    left.barh(rows, steps, color=PALETTE[1], label="beside the others")
    left.barh(rows, alone, color=PALETTE[0], label="alone")
    left.set_yticks(rows, [job.name for job in jobs], parse_math=False)
    left.set_ylim(len(jobs) - 0.5, -0.5)
    left.set_xlabel(f"step ({name})")
    left.legend(loc="upper center", bbox_to_anchor=(0.5, 1.18), ncols=2, frameon=False)
    roles = [role.name for role in answer.timeline.roles][:_ROWS]
    for span in answer.timeline.spans:
        if span.role < _ROWS:
            shade = PALETTE[5] if span.name.endswith(("0", "2", "4", "6", "8")) else PALETTE[0]
            right.barh(span.role, span.duration, left=span.start, color=shade)
    right.set_yticks(range(len(roles)), roles, parse_math=False)
    right.set_ylim(max(len(roles), 1) - 0.5, -0.5)
    right.set_xlabel("steps of the jobs that meet (s)")
    return fig
