"""Draw sampled steps, and runs with several seeds."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from sim.analysis.samples.answer import Samples
from sim.analysis.samples.seeds import Seeds
from sim.interface.plots import loss
from sim.interface.plots.picture import PALETTE, Figure
from sim.results.formatting import count, several, time_unit

_BLUE, _ORANGE, _DARK = "#0072b2", "#e69f00", "0.25"


def figure(samples: Samples) -> Figure:
    """Draw a histogram of step times with the lost time beside it. Below, draw the seconds that
    each stage and replica costs."""
    rows = 2 if samples.owed.size else 1
    fig = Figure(figsize=(11.0, 3.7 * rows), layout="constrained")
    fig.suptitle(
        f"{samples.scenario}: {count(samples.samples)} steps on {several(samples.ranks, 'GPU')}, "
        "every rank at a pace of its own"
    )
    grid = fig.add_gridspec(rows, 2, width_ratios=(1.15, 1.0))
    _histogram(fig.add_subplot(grid[0, 0]), samples)
    _bars(fig.add_subplot(grid[0, 1]), samples)
    if samples.owed.size:
        _heat(fig, fig.add_subplot(grid[1, :]), samples)
    return fig


def _histogram(axes: Axes, samples: Samples) -> None:
    """Draw a histogram of step times. It ends at 1.5 times the loss of p99; the label counts the
    steps beyond its end."""
    bins = min(60, max(8, samples.samples // 15))
    end = samples.healthy + 1.5 * (samples.quantile(0.99) - samples.healthy)
    times, spread = samples.step_times, max(end - samples.healthy, 1e-9)
    axes.hist(times[times <= end], bins=bins, color=_BLUE, alpha=0.85)
    axes.axvline(samples.healthy, color=_DARK, linewidth=1.5)
    low, high = axes.get_ylim()
    axes.text(samples.healthy, high, " no stragglers", va="top", color=_DARK, fontsize=8)
    for name, share, height in (("median", 0.5, 0.87), ("p95", 0.95, 0.78), ("p99", 0.99, 0.69)):
        seconds = samples.quantile(share)
        axes.axvline(seconds, color=_ORANGE, linewidth=1.2)
        label = f" {name} {seconds:.3f} s"
        axes.text(seconds, low + height * (high - low), label, color=_DARK, fontsize=8)
    axes.set_xlim(samples.healthy - 0.06 * spread, end)
    beyond = int((times > end).sum())
    more = f"; {beyond} beyond, up to {times.max():.3f} s" if beyond else ""
    axes.set_xlabel(f"step time (s){more}")
    axes.set_ylabel("steps")
    _plain(axes)


def _bars(axes: Axes, samples: Samples) -> None:
    parts = [(name, seconds, _BLUE) for name, seconds in samples.by_meeting.items()]
    parts += [(f"cause: {name}", seconds, _ORANGE) for name, seconds in samples.by_cause.items()]
    labels = [name for name, _, _ in parts]
    widths = [1e3 * seconds for _, seconds, _ in parts]
    axes.barh(range(len(parts)), widths, color=[colour for *_, colour in parts], height=0.65)
    for row, width in enumerate(widths):
        axes.text(max(width, 0.0), row, f" {width:.1f} ms", va="center", fontsize=8, color=_DARK)
    axes.set_yticks(range(len(parts)), labels, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(min(0.0, *widths), 1.25 * max(*widths, 1e-9))
    axes.set_xlabel("mean loss a step (ms): by wait (blue), by cause (orange)")
    _plain(axes)


def _heat(fig: Figure, axes: Axes, samples: Samples) -> None:
    owed = 1e3 * samples.owed
    top = float(np.quantile(owed, 0.999)) or float(owed.max()) or 1.0
    image = axes.imshow(owed, aspect="auto", cmap="cividis", vmin=0.0, vmax=top,
                        interpolation="nearest", origin="lower")  # fmt: skip
    fig.colorbar(image, ax=axes, label="ms of the mean step", pad=0.01)
    axes.set_xlabel("replica")
    axes.set_ylabel("stage")
    axes.set_title(
        "What each tensor-parallel group costs the mean step. In every step the groups of the "
        "last replica share its loss", fontsize=9,
    )  # fmt: skip
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def _plain(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)


def seeds(samples: Seeds) -> Figure:
    """Draw the median of all loss curves with a band from the lowest to the highest. Without a
    learning task, draw histograms of the runs' times and rates."""
    runs: Any = samples.runs
    title = f"{runs[0].title}, {samples.samples} seeds"
    if any(run.get("curve") for run in runs):
        return loss.figure([runs], title=f"{title}, {runs[0].task}")
    fig = Figure(figsize=(10.0, 3.4), layout="constrained")
    fig.suptitle(title, x=0.01, ha="left", fontweight="bold")
    scale, unit = time_unit(float(samples.named["time"].min()))
    shown = (("time", f"time of a run ({unit})", scale), ("samples_per_second", "samples/s", 1.0))
    for axes, (name, label, scale) in zip(fig.subplots(1, 2), shown, strict=True):
        values = samples.named[name] / scale
        axes.hist(values, bins=min(30, max(5, samples.samples // 3)), color=PALETTE[0], alpha=0.85)
        axes.axvline(float(values.mean()), color=PALETTE[1])
        axes.set(xlabel=f"{label}, mean {values.mean():.4g}", ylabel="runs")
        loss.plain(axes)
    return fig
