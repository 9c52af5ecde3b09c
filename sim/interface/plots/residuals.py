"""Errors of one table against properties of its runs: where predictions miss."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from sim.analysis.validation.errors import summary
from sim.analysis.validation.validate import ValidatedRun, ValidatedTable
from sim.interface.plots.picture import PALETTE, Figure

AGAINST = ("tp", "pp", "dp", "microbatch", "seq", "nodes", "precision")
_COLUMNS = 4
_MOST_VALUES = 14  # beside each other; more are taken together by octaves
_TICKS = 6
_WITHIN = 0.2  # the band of errors that is shaded


def figure(table: ValidatedTable) -> Figure | None:
    """Predicted against measured step times, and the error by every property that varies; None
    where nothing was timed."""
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
    """The errors of runs in columns by value (octaves of many), each with its median."""
    own = [run.configuration[key] for run in runs]
    binned = len(set(own)) > _MOST_VALUES and all(isinstance(value, int) for value in own)
    columns = [_octave(value) for value in own] if binned else own
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
    """The power of two at or below a count."""
    return 1 << (max(value, 1).bit_length() - 1)


def _number(value: object) -> str:
    """Powers of two of a thousand and more in short: 8192 is 8k."""
    if isinstance(value, int) and value >= 1024 and value % 1024 == 0:
        return f"{value // 1024}k"
    return str(value)


def _size(runs: Sequence[ValidatedRun]) -> float:
    return max(5.0, min(30.0, 1500.0 / len(runs)))
