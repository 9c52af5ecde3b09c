"""Draw the learning of workers that share updates: the loss, and the accuracy if the task has one,
against simulated time, samples and bytes."""

from collections.abc import Iterable, Sequence
from functools import partial
from math import isfinite
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray

from sim.interface.plots.picture import PALETTE, Figure
from sim.jobs.sharing.outcome import Outcome

_DASHES = ("-", "--")  # the second is for lines beyond the number of colours
_AGAINST = {
    "seconds": ("simulated time (s)", 1.0),
    "samples": ("samples", 1.0),
    "bytes": ("sent on all links (GB)", 1e-9),
}
_SHOWN = {"loss": "loss", "accuracy": "right answers"}
_POINTS = 200  # points of a band
_HIGHEST = 100.0  # a loss above this multiple of the first loss is not drawn

Runs = Outcome | Sequence[Outcome]


def figure(
    outcomes: Iterable[Runs],
    *,
    names: Sequence[str] = (),
    title: str = "",
    stacked: bool = False,
) -> Figure:
    """Draw a line for each outcome, labelled by `names` or by its method. An entry with several
    outcomes holds runs of several seeds: their median is drawn, with a band from the lowest to the
    highest. A loss that diverges leaves the picture, and its label says so. For a narrow column the
    panels are `stacked`."""
    learnt = [[run for run in _several(runs) if run.curve] for runs in outcomes]
    shown = ["loss"]
    if any(point.accuracy is not None for runs in learnt for run in runs for point in run.curve):
        shown.append("accuracy")
    panels = [(value, against) for value in shown for against in _AGAINST]
    if stacked:
        fig = Figure(figsize=(7.0, 3.2 * len(panels)), layout="constrained")
        grid = fig.subplots(len(panels), 1, squeeze=False)
    else:
        fig = Figure(figsize=(14.0, 4.2 if len(shown) == 1 else 6.6), layout="constrained")
        grid = fig.subplots(len(shown), len(_AGAINST), sharey="row", sharex="col", squeeze=False)
        fig.narrow = partial(figure, learnt, names=names, title=title, stacked=True)
    for axes, (value, against) in zip(grid.flat, panels, strict=True):
        for number, runs in enumerate(learnt):
            if runs:
                name = names[number] if names else runs[0].method
                _line(axes, runs, against, value, name=name, number=number)
        plain(axes)
        if axes in grid[:, 0]:
            axes.set_ylabel(_SHOWN[value])
        if stacked or axes in grid[-1]:
            axes.set_xlabel(_AGAINST[against][0])
        if value == "loss":
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 3.0, 5.0)))
            axes.yaxis.set_minor_locator(NullLocator())
            axes.yaxis.set_major_formatter("{x:.3g}")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    if stacked:
        fig.legend(handles, labels, loc="outside lower center", frameon=False)
    else:
        fig.legend(handles, labels, loc="outside right center", frameon=False)
    fig.suptitle(title, x=0.01, ha="left", fontweight="bold", wrap=stacked)
    return fig


def _several(runs: Runs) -> Sequence[Outcome]:
    return runs if isinstance(runs, Sequence) else [runs]


def _line(
    axes: Axes, runs: Sequence[Outcome], against: str, value: str, *, name: str, number: int
) -> None:
    dash, colour = divmod(number, len(PALETTE))
    style: dict[str, Any] = {"color": PALETTE[colour]}
    scale = _AGAINST[against][1]
    along, low, middle, high = band(runs, against, value)
    top = _HIGHEST * max(run.curve[0].loss for run in runs) if value == "loss" else np.inf
    low, high = np.minimum(low, top), np.minimum(high, top)
    middle = np.where(middle > top, np.nan, middle)
    if len(runs) > 1:
        axes.fill_between(scale * along, low, high, alpha=0.2, linewidth=0.0, **style)
    if gone := sum(not isfinite(run.curve[-1].loss) for run in runs):
        name += f" ({gone} of {len(runs)} diverged)" if len(runs) > 1 else " (diverged)"
    style |= {"linestyle": _DASHES[dash % 2], "linewidth": 1.3, "label": name}
    axes.plot(scale * along, middle, **style)


def band(runs: Sequence[Outcome], against: str, value: str) -> tuple[NDArray[np.float64], ...]:
    """Return positions (`against`), and the lowest, median and highest value of all runs there. A
    single run gives its own points. Several runs are interpolated over the range that all runs
    cover."""
    known = [[point for point in run.curve if getattr(point, value) is not None] for run in runs]
    lines = [
        (
            np.array([getattr(point, against) for point in curve], dtype=float),
            np.nan_to_num([getattr(point, value) for point in curve], nan=np.inf, posinf=np.inf),
        )
        for curve in known
        if curve
    ]
    if not lines:
        return (np.zeros(0),) * 4
    if len(lines) == 1:
        return lines[0][0], *((lines[0][1],) * 3)
    along = np.linspace(max(x[0] for x, _ in lines), min(x[-1] for x, _ in lines), _POINTS)
    between = [np.interp(along, x, y) for x, y in lines]
    every = np.nan_to_num(between, nan=np.inf, posinf=np.inf)
    return along, every.min(axis=0), np.median(every, axis=0), every.max(axis=0)


def plain(axes: Axes) -> None:
    """Remove the frame above and to the right, and write long numbers with separators."""
    axes.spines[["right", "top"]].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
