"""Validation as a picture: predicted against measured step time, with intervals."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator

from sim.analysis.validation.answer import Validation
from sim.analysis.validation.errors import summary
from sim.analysis.validation.validate import ValidatedRun
from sim.interface.plots.picture import PALETTE, Figure

_MARKERS = ("o", "^", "s", "D")  # when the colours are used up


def figure(validation: Validation) -> Figure:
    """Every run that was predicted, each table in a colour of its own, on logarithmic axes."""
    tables = validation.tables
    fig = Figure(figsize=(7.0, 6.4), layout="constrained")
    axes = fig.add_subplot()
    timed = [[run for run in table.rows if run.error is not None] for table in tables]
    for number, (table, runs) in enumerate(zip(tables, timed, strict=True)):
        if runs:
            colour, error = PALETTE[number % len(PALETTE)], summary(table)["median"]
            _intervals(axes, runs, colour)
            axes.scatter(
                [run.measured or 0.0 for run in runs],
                [run.predicted or 0.0 for run in runs],
                s=max(6.0, min(40.0, 1500.0 / len(runs))),
                alpha=0.65,
                linewidths=0,
                color=colour,
                marker=_MARKERS[number // len(PALETTE) % len(_MARKERS)],
                label=f"{table.name}: {len(runs)} runs, median error {error:.1%}",
                zorder=3 if len(runs) < 50 else 2,
            )
    times = [
        time or 0.0 for runs in timed for run in runs for time in (run.measured, run.predicted)
    ]
    _decorate(axes, min(times, default=1e-3) / 1.3, max(times, default=1.0) * 1.3)
    return fig


def _intervals(axes: Axes, runs: Sequence[ValidatedRun], colour: str) -> None:
    """The predictions' intervals; fainter where there are many."""
    bounds = [
        (run.measured, run.low, run.high)
        for run in runs
        if run.measured is not None and run.low is not None and run.high is not None
    ]
    axes.vlines(
        [measured for measured, _, _ in bounds],
        [low for _, low, _ in bounds],
        [high for _, _, high in bounds],
        color=colour,
        linewidth=0.8,
        alpha=max(0.08, min(0.6, 20.0 / max(len(bounds), 1))),
        zorder=1,
    )


def _decorate(axes: Axes, low: float, high: float) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.plot([low, high], [low, high], color="0.3", linewidth=1, label="predicted = measured")
    axes.fill_between(
        [low, high], [0.8 * low, 0.8 * high], [1.2 * low, 1.2 * high],
        color="0.85", zorder=0, label="within 20 %",
    )  # fmt: skip
    axes.set_xlim(low, high)
    axes.set_ylim(low, high)
    axes.set_aspect("equal")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(lambda value, _: f"{value:,.6g}")
        axis.set_minor_locator(NullLocator())
    axes.set_xlabel("measured step time (s)")
    axes.set_ylabel("predicted step time (s)")
    axes.set_title("One description per cluster and stack; bars are 90 % intervals")
    axes.legend(loc="upper left", fontsize=8)
    axes.grid(which="major", color="0.92", zorder=0)
