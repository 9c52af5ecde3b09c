"""Draw memory over a step: the fullest stage by part, and below it the total of all stages. The
lower axis begins at the least allocated bytes, so that small changes can be seen."""

from collections.abc import Sequence
from itertools import starmap
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes

from sim.engine.memory_curve import MemoryCurve
from sim.interface.plots.picture import Figure
from sim.program.memory_levels import Floats
from sim.results.formatting import time_unit

if TYPE_CHECKING:
    from sim.results.result import Result

_GIB = 2.0**30
_GREY = "0.4"
# A part has the same colour in all pictures: a colour of Okabe and Ito, or a shade of the colour of
# a related part.
COLOURS = {
    "weights": "#0072b2",
    "gathered weights": "#6fb7e9",
    "weight versions": "#004166",
    "gradients": "#009e73",
    "unsharded gradients": "#7fd6bc",
    "optimizer": "#d55e00",
    "optimizer step": "#f4b183",
    "activations": "#e69f00",
    "transient": "#f0e442",
    "fresh gradients": "#00543d",
    "compression error": "#5f6b00",
    "buffers": "#cc79a7",
    "communication": "#8c3373",
    "fragmentation": "#999999",
}
_RECORDED = {  # names that recordings use for these parts
    "parameters": "weights", "temporary": "transient", "cached, not allocated": "fragmentation",
}  # fmt: skip
OTHER = "#000000"
_SEEN = 0.05  # GiB: a part that changes by less is constant
_NAMED = 8  # stages that have a name of their own in the legend


def colour_of(part: str) -> str:
    """Return the colour of a part of memory."""
    return COLOURS.get(_RECORDED.get(part, part), OTHER)


def bands(curve: MemoryCurve, points: Any = slice(None)) -> dict[str, Floats]:
    """Return the GiB of each part at points of a curve; the part with the highest minimum is
    first."""
    sizes = dict(zip(curve.parts, curve.bytes[points].T / _GIB, strict=True))
    if curve.fragmented:
        sizes["fragmentation"] = np.full(len(curve.times[points]), curve.fragmented / _GIB)
    return dict(sorted(sizes.items(), key=lambda own: -float(own[1].min())))


def figure(result: "Result") -> Figure:
    """Draw the fullest stage's GiB by part over the step. Below, draw the total of each stage, on
    an axis that begins at the lowest total."""
    curves = result.memory_curves
    fullest = max(curves, key=lambda curve: curve.peak)
    several = len(curves) > 1
    fig = Figure(figsize=(10.5, 7.4 if several else 4.6), layout="constrained")
    panels = fig.subplots(1 + several, 1, sharex=True, squeeze=False)[:, 0]
    fig.suptitle(f"{result.scenario}: memory of one GPU over a step")
    scale, unit = time_unit(result.step_time)
    _parts(panels[0], fullest, result, scale, of=f"stage {fullest.stage}" if several else "")
    if several:
        _stages(panels[1], curves, result, scale)
    panels[-1].set_xlabel(f"time ({unit})")
    return fig


def _parts(axes: Axes, curve: MemoryCurve, result: "Result", scale: float, *, of: str) -> None:
    """Draw a band for each part; the part with the highest minimum is at the bottom."""
    times = np.append(curve.times, result.timeline.end) / scale
    sizes = {part: np.append(band, band[-1]) for part, band in bands(curve).items()}
    axes.stackplot(
        times,
        [*sizes.values()],
        labels=list(starmap(_named, sizes.items())),
        colors=list(map(colour_of, sizes)),
        step="post",
        linewidth=0,
        alpha=0.85,
    )
    _limit(axes, result, curve.peak)
    moment = int(curve.total.argmax())
    axes.plot([times[moment]], [curve.peak / _GIB], "v", color="black", markersize=5,
              clip_on=False)  # fmt: skip
    title = f"{of}, the fullest: peak" if of else "peak"
    title = f"{title} {curve.peak / _GIB:.1f} GiB"
    more, moving = max((float(band[moment] - band.min()), part) for part, band in sizes.items())
    if more >= _SEEN:
        title += f"; {more:.1f} GiB of {moving} come and go"
    axes.set_title(title, loc="left", fontsize=10)
    _legend(axes)


def _named(part: str, band: Floats) -> str:
    """Return the label of a part with its GiB: a constant, or the lowest and the highest."""
    low, high = float(band.min()), float(band.max())
    return f"{part}, {high:.1f}" if high - low < _SEEN else f"{part}, {low:.1f} to {high:.1f}"


def _stages(axes: Axes, curves: Sequence[MemoryCurve], result: "Result", scale: float) -> None:
    """Draw the total of each stage."""
    for number, curve in enumerate(curves):
        times = np.append(curve.times, result.timeline.end) / scale
        total = np.append(curve.total, curve.total[-1]) / _GIB
        named = len(curves) <= _NAMED or number in (0, len(curves) - 1)
        axes.step(
            times,
            total,
            where="post",
            linewidth=1.0,
            label=f"stage {curve.stage}" if named else None,
            color=_shade(number / max(len(curves) - 1, 1)),
        )
    axes.margins(x=0.0)
    axes.set_ylabel("GiB")
    axes.spines[["top", "right"]].set_visible(False)
    lowest = min(float(curve.total.min()) for curve in curves) / _GIB
    axes.set_title(f"all stages, from the least that is allocated, {lowest:.1f} GiB", loc="left",
                   fontsize=10)  # fmt: skip
    _legend(axes)


def _shade(share: float) -> tuple[float, ...]:
    return tuple(mpl.colormaps["viridis"](0.9 * share))


def _limit(axes: Axes, result: "Result", peak: float) -> None:
    """Draw the GPU's usable memory, if the peak is above 40 % of it; set the axes."""
    capacity = result.capacity / _GIB
    if peak / _GIB > 0.4 * capacity:
        axes.axhline(capacity, color=_GREY, linestyle=":", linewidth=1.2)
        label = f"{capacity:.1f} GiB usable "
        axes.text(1.0, capacity, label, transform=axes.get_yaxis_transform(), va="bottom",
                  ha="right", fontsize=8, color=_GREY)  # fmt: skip
    axes.set_ylim(bottom=0.0)
    axes.margins(x=0.0)
    axes.set_ylabel("GiB")
    axes.spines[["top", "right"]].set_visible(False)


def _legend(axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(
        handles[::-1], labels[::-1], loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False,
        fontsize=8,
    )  # fmt: skip
