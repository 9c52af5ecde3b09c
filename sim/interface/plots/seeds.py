"""Runs of shared updates with other seeds: the course of learning, or the spread of times."""

from typing import Any

from sim.analysis.samples.seeds import Seeds
from sim.interface.plots import loss
from sim.interface.plots.picture import PALETTE, Figure
from sim.results.formatting import time_unit


def figure(samples: Seeds) -> Figure:
    """The median of all curves in a band from the lowest to the highest; times and rates of the
    runs where nothing is learnt."""
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
