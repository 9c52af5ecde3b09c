"""Memory over a step, to zoom into: the fullest stage by part, and the total of all stages."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from bokeh.models import ColumnDataSource, HoverTool, Range1d, Span
from matplotlib import colormaps
from matplotlib.colors import to_hex
from numpy.typing import NDArray

from sim.engine.memory_curve import MemoryCurve
from sim.interface.page.figures import blank
from sim.interface.page.page import Chart
from sim.interface.plots.memory import bands, colour_of
from sim.results.formatting import time_unit
from sim.results.result import Result

_GIB = 2.0**30
_MOST = 2000  # points of a curve
_GREY = "#808080"

Floats = NDArray[np.float32]


def charts(result: Result, along: Range1d) -> Iterator[Chart]:
    """Yield the chart of the fullest stage, and a chart of all stages if there are several."""
    curves = result.memory_curves
    yield _parts(max(curves, key=lambda curve: curve.peak), result, along)
    if len(curves) > 1:
        yield _stages(curves, result, along)


def _parts(curve: MemoryCurve, result: Result, along: Range1d) -> Chart:
    kept, (scale, unit) = _kept(curve), time_unit(result.timeline.end)
    sizes = bands(curve, kept)
    columns = {"time": _closed(curve.times[kept] / scale, result.timeline.end / scale)}
    below = np.zeros(len(kept))
    for number, name in enumerate(sizes):
        columns[f"from {number}"] = _closed(below)
        below = below + sizes[name]
        columns[f"to {number}"], columns[name] = _closed(below), _closed(sizes[name])
    columns["total"] = _closed(below)
    source = ColumnDataSource(columns)
    tips = [(name, f"@{{{name}}}{{0.00}} GiB") for name in (*reversed(sizes), "total")]
    hover = HoverTool(tooltips=[("time", f"@time{{0.0000}} {unit}"), *tips], mode="vline")
    made = blank(name="memory", height=320, along=along, hover=hover,
                 y_axis_label="GiB", x_axis_label=f"time ({unit})")  # fmt: skip
    for number, name in enumerate(sizes):
        made.varea_step("time", f"from {number}", f"to {number}", source=source,
                        step_mode="after", fill_color=colour_of(name))  # fmt: skip
    line = made.step("time", "total", source=source, mode="after", line_width=0.5, color=_GREY)
    hover.renderers = [line]
    _limit(made, curve.peak, result)
    of = f"stage {curve.stage}, the fullest" if len(result.memory_curves) > 1 else "the GPU"
    return Chart(
        name="memory",
        figure=made,
        says=f"Memory over the step of {of}: peak {curve.peak / _GIB:.1f} of "
        f"{result.capacity / _GIB:.1f} GiB (dashed).",
        legend={name: colour_of(name) for name in reversed(sizes)},
    )


def _stages(curves: Sequence[MemoryCurve], result: Result, along: Range1d) -> Chart:
    scale, unit = time_unit(result.timeline.end)
    end = result.timeline.end / scale
    # Without the ends of viridis, shades are visible on white and on black.
    places = np.linspace(0.35, 0.85, len(curves))
    shades = [to_hex(colour) for colour in colormaps["viridis"](places)]
    points = [(curve, _kept(curve)) for curve in curves]
    source = ColumnDataSource(
        {
            "times": [
                np.repeat(_closed(curve.times[kept] / scale, end), 2)[1:-1]
                for curve, kept in points
            ],
            "totals": [
                np.repeat(curve.total[kept] / _GIB, 2).astype(np.float32) for curve, kept in points
            ],
            "stage": [curve.stage for curve in curves],
            "peak": [curve.peak / _GIB for curve in curves],
            "colour": shades,
        }
    )
    hover = HoverTool(
        tooltips=[("stage", "@stage"), ("peak", "@peak{0.0} GiB"), ("here", "$y{0.0} GiB")],
        line_policy="interp",
    )
    made = blank(name="stages", height=260, along=along, hover=hover,
                 y_axis_label="GiB", x_axis_label=f"time ({unit})")  # fmt: skip
    made.multi_line("times", "totals", source=source, line_color="colour", line_width=1.4)
    _limit(made, max(curve.peak for curve in curves), result)
    named = curves if len(curves) <= 8 else (curves[0], curves[len(curves) // 2], curves[-1])
    colours = dict(zip((curve.stage for curve in curves), shades, strict=True))
    return Chart(
        name="stages",
        figure=made,
        says=f"Memory over the step of one GPU of each of {len(curves)} stages.",
        legend={f"stage {curve.stage}": colours[curve.stage] for curve in named},
        moves=False,
    )


def _limit(made: Any, peak: float, result: Result) -> None:
    """Draw the GPU's memory as a dashed line, within the axis."""
    made.y_range = Range1d(0.0, 1.06 * max(peak, result.capacity) / _GIB)
    line = Span(location=result.capacity / _GIB, dimension="width", line_dash="dashed",
                line_color=_GREY)  # fmt: skip
    made.add_layout(line)


def _kept(curve: MemoryCurve) -> NDArray[np.intp]:
    """Return the points of a curve that are drawn: all, or the highest in each of 2,000
    stretches."""
    if len(curve.times) <= _MOST:
        return np.arange(len(curve.times))
    parts = np.array_split(np.arange(len(curve.times)), _MOST)
    return np.array([part[int(curve.total[part].argmax())] for part in parts])


def _closed(values: NDArray[np.float64], end: float | None = None) -> Floats:
    """Append the last value again, or the `end` time, so that the curve reaches the step's end."""
    last = values[-1:] if end is None else np.array([end])
    return np.concatenate((values, last)).astype(np.float32)
