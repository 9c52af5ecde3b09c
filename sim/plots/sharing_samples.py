"""Runs of shared updates with other seeds: what they learn on the way, or how their times vary."""

from sim.plots import loss
from sim.plots.picture import PALETTE, Figure
from sim.results.formatting import time_unit
from sim.samples.sharing import SharingSamples


def figure(samples: SharingSamples) -> Figure:
    """The median of all curves in a band from the lowest to the highest; times and rates of the
    runs where nothing is learnt."""
    first = samples.runs[0]
    title = f"{samples.scenario}: {first.method}, {samples.samples} seeds"
    if any(run.curve for run in samples.runs):
        return loss.figure([samples.runs], title=f"{title}, {first.task}")
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
