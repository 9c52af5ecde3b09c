"""Studies of shared updates: what a setting trades for what."""

from collections.abc import Callable, Mapping
from math import isfinite
from statistics import median
from typing import Protocol

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator

from sim.interface.plots.picture import PALETTE, Figure
from sim.jobs.sharing.outcome import Outcome

_DECADES = 8.0  # between the least and the most, from which on an axis is logarithmic


class Shown(Protocol):
    """What a study has to draw."""

    @property
    def title(self) -> str: ...
    @property
    def axis(self) -> str: ...
    @property
    def target(self) -> float: ...
    @property
    def ways(self) -> list[str]: ...
    @property
    def settings(self) -> list[str]: ...
    @property
    def outcomes(self) -> Mapping[tuple[str, str], tuple[Outcome, ...]]: ...
    def seconds(self, way: str, setting: str) -> list[float]: ...
    def samples(self, way: str, setting: str) -> list[float]: ...
    def pace(self, way: str, setting: str) -> list[float]: ...


def settings(study: Shown) -> Figure:
    """Time to the target at every setting, which is samples over samples a second: three panels
    with the median of the seeds, and each of them as a thin line."""
    fig = Figure(figsize=(12.0, 3.8), layout="constrained")
    panels = fig.subplots(1, 3)
    names = (f"seconds to a loss of {study.target:g}", "= samples to it", "/ samples a second")
    of = (study.seconds, study.samples, study.pace)
    for axes, name, figure in zip(panels, names, of, strict=True):
        shown = [
            _line(axes, study, way, figure, PALETTE[number % len(PALETTE)])
            for number, way in enumerate(study.ways)
        ]
        _scaled(axes, [value for own in shown for value in own if isfinite(value)])
        axes.set_title(name, loc="left", fontsize=10)
        axes.set_xticks(range(len(study.settings)), study.settings)
        axes.set_xlabel(study.axis)
        axes.spines[["right", "top"]].set_visible(False)
    if len(study.ways) > 1:
        panels[2].legend(frameon=False, fontsize=9)
    fig.suptitle(study.title, x=0.01, ha="left", fontweight="bold")
    return fig


def _scaled(axes: Axes, values: list[float]) -> None:
    """From zero on, or by decades where there are some."""
    if values and max(values) > _DECADES * min(values):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.set_ylim(0.0, 1.15 * max(values, default=1.0))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")


def _line(
    axes: Axes, study: Shown, way: str, figure: Callable[[str, str], list[float]], colour: str
) -> list[float]:
    """Draw the medians and every seed; all of their values."""
    found = [figure(way, setting) for setting in study.settings]
    for seed in zip(*found, strict=True):
        at = [n for n, value in enumerate(seed) if isfinite(value)]
        axes.plot(at, [seed[n] for n in at], color=colour, linewidth=0.7, alpha=0.4)
    middle = [median(own) for own in found]
    known = [n for n, value in enumerate(middle) if isfinite(value)]
    axes.plot(known, [middle[n] for n in known], "o-", color=colour, markersize=4, label=way)
    for n in set(range(len(middle))) - set(known):
        axes.annotate(
            "never",
            (n, 0.94),
            xycoords=("data", "axes fraction"),
            ha="center",
            fontsize=8,
            color=colour,
        )
    if figure == study.seconds and len(study.ways) == 1 and known:
        best = min(known, key=lambda n: middle[n])
        axes.plot(best, middle[best], "o", color=colour, markersize=10, fillstyle="none")
    return [value for own in found for value in own]
