"""Draw long runs: a month with interruptions, the cost of a training, a deadline."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from sim.analysis.reliability.budget import Budget
from sim.analysis.reliability.cost import TrainingCost
from sim.analysis.reliability.goodput import Goodput
from sim.config.readable import human_seconds
from sim.config.units import DAY, HOUR, MINUTE
from sim.interface.plots.picture import PALETTE, Figure
from sim.results.formatting import energy_unit, large, long_unit, money_unit, several

_ALIKE = 0.02  # checkpoint intervals that differ by a smaller share are drawn once


def goodput(goodput: Goodput) -> Figure:
    """Draw bars of unproductive time by cause, and the effective share by checkpoint interval."""
    searched = bool(goodput.tried)
    fig = Figure(figsize=(11.0 if searched else 6.0, 4.0), layout="constrained")
    panels = fig.subplots(1, 2 if searched else 1, squeeze=False)[0]
    total = sum(goodput.seconds.values())
    lost = {cause: spent for cause, spent in goodput.seconds.items() if cause != "productive"}
    names, seconds = list(lost), list(lost.values())
    bars = panels[0].barh(names, [100.0 * spent / total for spent in seconds], color=PALETTE[1])
    words = [f" {spent / HOUR:,.1f} h" for spent in seconds]
    panels[0].bar_label(bars, words, fontsize=9)
    panels[0].invert_yaxis()
    panels[0].margins(x=0.18)
    panels[0].set_xlabel(f"share of {several(goodput.days, 'day')} that is lost (%)")
    if searched:
        axes = panels[1]
        times = [interval / MINUTE for interval, _ in goodput.tried]
        shares = [100.0 * share for _, share in goodput.tried]
        axes.plot(times, shares, marker="o", color=PALETTE[0], label="simulated")
        marks = {"in use": goodput.conduct.interval}
        if abs(goodput.daly / goodput.conduct.interval - 1.0) > _ALIKE:
            marks["Daly"] = goodput.daly
        for (name, interval), colour in zip(marks.items(), (PALETTE[6], PALETTE[2]), strict=False):
            label = f"{name}: {human_seconds(interval)}"
            axes.axvline(interval / MINUTE, color=colour, linestyle=":", label=label)
        axes.set(xscale="log", xlabel="interval between checkpoints (min)",
                 ylabel="effective training time (%)")  # fmt: skip
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.3g}")
        axes.xaxis.set_minor_formatter(lambda value, _: "")
        fig.legend(frameon=False, fontsize=9, loc="outside lower right", ncols=3)
    for axes in panels:
        axes.spines[["right", "top"]].set_visible(False)
    job = f"{goodput.inputs.model} on {several(goodput.gpus, 'GPU')}"
    fig.suptitle(f"{job}: {goodput.effective:.1%} effective", x=0.01, ha="left", fontweight="bold")
    return fig


def cost(cost: TrainingCost) -> Figure:
    """Draw a panel each for days, dollars and energy, with bars for simulated and expected
    steps."""
    bounds = cost.bounds or {}
    scale, unit = long_unit(cost.seconds)
    shown: list[tuple[str, str, float, float]] = [("days", unit, cost.days, scale / DAY)]
    if cost.dollars:
        scale, unit = money_unit(cost.dollars)
        shown.append(("dollars", f"{unit} of rent", cost.dollars, scale))
    scale, unit = energy_unit(cost.energy)
    shown.append(("energy", f"energy ({unit})", cost.energy, scale))
    fig = Figure(figsize=(3.2 * len(shown), 3.8), layout="constrained")
    for axes, (key, label, value, per) in zip(fig.subplots(1, len(shown)), shown, strict=True):
        _panel(axes, label, value / per, {k: v / per for k, v in bounds.get(key, {}).items()})
    name = f"{cost.inputs.model} on {several(cost.inputs.gpus, 'GPU')}: " if cost.inputs else ""
    title = f"{name}{large(cost.tokens)} tokens"
    fig.suptitle(title, x=0.01, ha="left", fontweight="bold")
    if cost.inputs and cost.inputs.price:
        fig.supxlabel(f"at {cost.inputs.price}", fontsize=9, x=0.01, ha="left")
    return fig


def _panel(axes: Axes, label: str, value: float, bounds: dict[str, Any]) -> None:
    heights, names = [value], ["simulated"]
    if bounds:
        heights.append(bounds["expected"])
        names.append("expected")
    bars = axes.bar(names, heights, color=PALETTE[: len(heights)], width=0.6)
    if bounds:
        below, above = (abs(bounds[key] - bounds["expected"]) for key in ("low", "high"))
        axes.errorbar(1, bounds["expected"], yerr=[[below], [above]], color="black", capsize=6)
    axes.bar_label(
        bars,
        [f"{height:,.0f}" if height >= 1e3 else f"{height:.3g}" for height in heights],
        label_type="center",
        color="white",
    )
    axes.set_title(label, fontsize=10, loc="left")
    axes.spines[["right", "top"]].set_visible(False)


def budget(budget: Budget) -> Figure:
    """Draw the chance of being done over the days, with the deadline if there is one."""
    fig = Figure(figsize=(5.6, 3.6), layout="constrained")
    axes = fig.subplots()
    days = np.asarray(budget.times) / DAY
    axes.step(days, np.linspace(0.0, 1.0, len(days)), where="post", color=PALETTE[0])
    if budget.deadline is not None:
        axes.axvline(budget.deadline, color="grey", linestyle=":", label="deadline")
        axes.legend(frameon=False)
    axes.set(xlabel="days", ylabel="chance that it is done", ylim=(0.0, 1.0))
    axes.spines[["right", "top"]].set_visible(False)
    title = f"{large(budget.tokens)} tokens on {several(budget.gpus, 'GPU')}"
    fig.suptitle(title, x=0.01, ha="left", fontweight="bold")
    return fig
