"""Draw workers that share updates: several methods side by side, or several numbers of workers."""

from typing import cast

from matplotlib.ticker import LogLocator

from sim.analysis.comparison.sharing import SharingComparison
from sim.config.readable import human_seconds
from sim.config.units import HOUR
from sim.interface.plots import loss, pipeline
from sim.interface.plots.loss import plain
from sim.interface.plots.picture import PALETTE, Figure
from sim.jobs.sharing.outcome import Outcome
from sim.jobs.sharing.worker_counts import WorkerCounts


def ways(compared: SharingComparison) -> Figure:
    """Draw the loss against time, samples and bytes. Without a learning task, draw the first
    steps."""
    outcomes = compared.outcomes
    if any(outcome.curve for outcome in outcomes.values()):
        runs = [
            cast("tuple[Outcome, ...]", case.runs) or outcomes[case.name] for case in compared.cases
        ]
        return loss.figure(runs, names=list(outcomes), title=compared.title)
    drawn = {name: outcome for name, outcome in outcomes.items() if outcome.timeline.roles}
    window = max((outcome.excerpt.end for outcome in drawn.values()), default=0.0)
    timelines = [(name, outcome.first(window)) for name, outcome in drawn.items()]
    shown = [f"{human_seconds(outcome.time)} in all" for outcome in drawn.values()]
    return pipeline.figures(timelines, shown=shown)


def workers(answer: WorkerCounts) -> Figure:
    """Draw the time against the number of workers, with a line for ideal scaling. Beside it, draw
    the cost against the time. The text below says where more workers stop helping."""
    points, cost = answer.points, answer.cost
    fig = Figure(figsize=(11.0, 4.6), layout="constrained")
    by_count, by_time = fig.subplots(1, 2)
    counts = [count for count, _, _ in points]
    hours = [seconds / HOUR for _, seconds, _ in points]
    full = [hours[0] * counts[0] / count for count in counts]
    by_count.loglog(counts, full, linestyle="--", color="#999999", label="ideal scaling")
    by_count.loglog(counts, hours, marker="o", color=PALETTE[0], label="simulated")
    by_count.set(xlabel="workers", ylabel="hours to the target")
    by_count.legend(frameon=False)
    by_time.loglog(hours, [dear for _, _, dear in points], marker="o", color=PALETTE[1])
    by_time.set(xlabel="hours to the target", ylabel=f"cost ({cost})")
    for (count, _, dear), hour in zip(points, hours, strict=True):
        by_time.annotate(f" {count:,}", (hour, dear), va="bottom", fontsize="small")
    for axes in (by_count, by_time):
        plain(axes)
        axes.minorticks_off()
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 5.0, 7.0)))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
    by_count.set_xticks(counts, [f"{count:,}" for count in counts])
    fig.suptitle(answer.scenario, x=0.01, ha="left", fontweight="bold")
    fig.supxlabel(answer.sentence.replace("$", r"\$"), fontsize="small")
    return fig
