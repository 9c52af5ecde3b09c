"""Goodput as a picture: where the days go, and how the interval between checkpoints matters."""

from sim.analysis.reliability.goodput import Goodput
from sim.config.units import HOUR, MINUTE, human_seconds
from sim.interface.plots.picture import PALETTE, Figure
from sim.results.formatting import several

_ALIKE = 0.02  # intervals that differ by less are drawn as one


def figure(goodput: Goodput) -> Figure:
    """Bars of unproductive time by cause, and the effective share by interval."""
    searched = bool(goodput.tried)
    fig = Figure(figsize=(11.0 if searched else 6.0, 4.0), layout="constrained")
    panels = fig.subplots(1, 2 if searched else 1, squeeze=False)[0]
    total = sum(goodput.seconds.values())
    lost = {cause: own for cause, own in goodput.seconds.items() if cause != "productive"}
    names, seconds = list(lost), list(lost.values())
    bars = panels[0].barh(names, [100.0 * own / total for own in seconds], color=PALETTE[1])
    words = [f" {own / HOUR:,.1f} h" for own in seconds]
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
