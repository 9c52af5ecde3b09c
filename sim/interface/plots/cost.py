"""The cost of training as a picture: days, dollars and energy, with the bounds that are known."""

from typing import Any

from matplotlib.axes import Axes

from sim.analysis.reliability.cost import TrainingCost
from sim.config.units import DAY
from sim.interface.plots.picture import PALETTE, Figure
from sim.results.formatting import energy_unit, large, long_unit, money_unit, several


def figure(cost: TrainingCost) -> Figure:
    """A panel for simulated steps, and a panel for expected steps."""
    bounds = cost.bounds or {}
    scale, unit = long_unit(cost.seconds)
    shown: list[tuple[str, str, float, float]] = [("days", unit, cost.days, scale / DAY)]
    if cost.dollars:
        scale, unit = money_unit(cost.dollars)
        shown.append(("dollars", f"{unit} of rent", cost.dollars, scale))
    scale, unit = energy_unit(cost.energy)
    shown.append(("energy", f"energy ({unit})", cost.energy, scale))
    fig = Figure(figsize=(3.2 * len(shown), 3.8), layout="constrained")
    for axes, (key, label, value, one) in zip(fig.subplots(1, len(shown)), shown, strict=True):
        _panel(axes, label, value / one, {k: v / one for k, v in bounds.get(key, {}).items()})
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
