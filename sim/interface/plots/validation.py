"""Draw predictions against measurements: steps, parts of steps, figures, residuals."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from sim.analysis.calibration.training.comparison import JobComparison
from sim.analysis.validation.answer import Validation
from sim.analysis.validation.errors import summary
from sim.analysis.validation.figures import FigureValidation
from sim.analysis.validation.parts import PartValidation
from sim.analysis.validation.validate import ValidatedRun, ValidatedTable
from sim.interface.plots.picture import PALETTE, Figure
from sim.results.formatting import time_unit

_MARKERS = ("o", "^", "s", "D")  # the next marker is used when all colours are used

AGAINST = ("tp", "pp", "dp", "microbatch", "seq", "nodes", "precision")
_COLUMNS = 4
_MOST_VALUES = 14  # columns of values; more values are grouped by octaves
_TICKS = 6
_WITHIN = 0.2  # errors within +-20 % are shaded


def figure(validation: Validation) -> Figure:
    """Draw every predicted run on logarithmic axes, with a colour for each table."""
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
    """Draw the predictions' intervals, fainter if there are many."""
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


def parts(answer: PartValidation) -> Figure:
    """Draw a point for each measured kernel or collective, with a colour for each kind."""
    fig = _ratios(
        [
            (run.group.partition(",")[0], 1e6 * run.measured, run.predicted / run.measured)
            for run in answer.runs
        ],
        "us",
        size=8.0,
    )
    name = answer.inputs.cluster or answer.inputs.device
    fig.axes[0].set_title(f"{name}: {len(answer.runs):,} measured")
    return fig


def figures(answer: FigureValidation) -> Figure:
    """Draw a point for each figure of a row, with a colour for each kind of figure."""
    return _ratios(
        [
            (run.figure, run.measured, run.predicted / run.measured)
            for run in answer.runs
            if run.predicted is not None
        ],
        "s",
        size=18.0,
    )


def _ratios(points: Sequence[tuple[str, float, float]], unit: str, size: float) -> Figure:
    """Draw predicted / measured against the measured value, with a colour for each kind of
    point."""
    fig = Figure(figsize=(8.4, 5.0), layout="constrained")
    axes = fig.add_subplot()
    for number, kind in enumerate(dict.fromkeys(kind for kind, _, _ in points)):
        group = [(measured, ratio) for name, measured, ratio in points if name == kind]
        axes.scatter([x for x, _ in group], [y for _, y in group], s=size, alpha=0.6, linewidths=0,
                     color=PALETTE[number % len(PALETTE)], label=kind)  # fmt: skip
    axes.axhline(1.0, color="0.3", linewidth=1)
    axes.axhspan(0.8, 1.2, color="0.9", zorder=0)
    axes.set(xscale="log", xlabel=f"measured ({unit})",
             ylabel="predicted / measured; grey: within 20 %")  # fmt: skip
    axes.legend(fontsize=8)
    return fig


def measured(comparison: JobComparison) -> Figure:
    """Draw a pair of bars (measured and predicted) for each quantity that is a time."""
    rows = [row for row in comparison.quantities if row.unit == "s"]
    scale, unit = time_unit(max(row.measured for row in rows))
    fig = Figure(figsize=(10.0, 0.8 + 0.6 * len(rows)), layout="constrained")
    axes = fig.subplots()
    for number, side in enumerate(("measured", "predicted")):
        places = [place + 0.4 * number for place in range(len(rows))]
        axes.barh(places, [getattr(row, side) / scale for row in rows], 0.38, label=side,
                  color=PALETTE[number])  # fmt: skip
    axes.set_yticks([place + 0.2 for place in range(len(rows))], [row.name for row in rows])
    axes.invert_yaxis()
    axes.set(xlabel=f"time ({unit})", title=comparison.title)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return fig


def residuals(table: ValidatedTable) -> Figure | None:
    """Draw predicted against measured step times, and the errors by each property that varies.
    Return None if no row has an error."""
    runs = [run for run in table.rows if run.error is not None]
    if not runs:
        return None
    varied = [key for key in AGAINST if len({run.configuration[key] for run in runs}) > 1]
    rows = -(-(1 + len(varied)) // _COLUMNS)
    columns = min(1 + len(varied), _COLUMNS)
    fig = Figure(figsize=(3.1 * columns, 2.9 * rows), layout="constrained")
    panels = fig.subplots(rows, columns, squeeze=False).ravel()
    _times(panels[0], runs)
    for panel, key in zip(panels[1:], varied, strict=False):
        _errors(panel, runs, key)
    for panel in panels[1 + len(varied) :]:
        panel.set_visible(False)
    errors = summary(table)
    fig.suptitle(
        f"{table.name}: {len(runs)} runs, MAPE {errors['mape']:.1%}, bias {errors['bias']:+.1%}",
        fontsize=10,
    )
    return fig


def _times(axes: Axes, runs: Sequence[ValidatedRun]) -> None:
    measured = [run.measured or 0.0 for run in runs]
    predicted = [run.predicted or 0.0 for run in runs]
    ends = min(measured + predicted) / 1.2, max(measured + predicted) * 1.2
    low, high = ([side * end for end in ends] for side in (1.0 - _WITHIN, 1.0 + _WITHIN))
    axes.fill_between(ends, low, high, color="0.9")
    axes.plot(ends, ends, color="0.3", linewidth=1)
    axes.scatter(measured, predicted, s=_size(runs), alpha=0.6, linewidths=0, color=PALETTE[0])
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=_TICKS))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("measured step time (s)", fontsize=8)
    axes.set_ylabel("predicted (s)", fontsize=8)
    axes.tick_params(labelsize=7, which="both")


def _errors(axes: Axes, runs: Sequence[ValidatedRun], key: str) -> None:
    """Draw the errors of runs in a column for each value of a property, or for each octave of many
    values, with their median."""
    given = [run.configuration[key] for run in runs]
    binned = len(set(given)) > _MOST_VALUES and all(isinstance(value, int) for value in given)
    columns = [_octave(value) for value in given] if binned else given
    values = sorted(set(columns))
    axes.axhspan(-100.0 * _WITHIN, 100.0 * _WITHIN, color="0.93")
    axes.axhline(0.0, color="0.3", linewidth=1)
    for place, value in enumerate(values):
        errors = [
            100.0 * (run.error or 0.0)
            for run, column in zip(runs, columns, strict=True)
            if column == value
        ]
        spread = np.linspace(-0.25, 0.25, len(errors)) if len(errors) > 1 else np.zeros(1)
        axes.scatter(
            place + spread, errors, s=_size(runs), alpha=0.5, linewidths=0, color=PALETTE[0]
        )
        middle = float(np.median(errors))
        axes.plot([place - 0.35, place + 0.35], [middle, middle], color=PALETTE[1], linewidth=2)
    texts = [
        f"{value} to {2 * value - 1}" if binned and value > 1 else _number(value)
        for value in values
    ]
    crowded = sum(map(len, texts)) > 26
    axes.set_xticks(range(len(values)), texts, fontsize=7, rotation=60 if crowded else 0)
    axes.set_xlabel("sequence" if key == "seq" else key, fontsize=8)
    axes.set_ylabel("error (%)", fontsize=8)
    axes.tick_params(axis="y", labelsize=7)


def _octave(value: int) -> int:
    """Return the largest power of two at or below a count."""
    return 1 << (max(value, 1).bit_length() - 1)


def _number(value: object) -> str:
    """Return a value as text; multiples of 1,024 are abbreviated: 8192 is 8k."""
    if isinstance(value, int) and value >= 1024 and value % 1024 == 0:
        return f"{value // 1024}k"
    return str(value)


def _size(runs: Sequence[ValidatedRun]) -> float:
    return max(5.0, min(30.0, 1500.0 / len(runs)))
