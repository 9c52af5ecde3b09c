"""The style of all figures of the page: no frame, time to the right, tools shown on demand."""

from typing import Any

from bokeh.models import BoxZoomTool, HoverTool, PanTool, Range1d, ResetTool, WheelZoomTool
from bokeh.plotting import figure

_WITH = {"shift": True}  # the wheel without Shift still scrolls the page


def blank(*, name: str, height: int, along: Range1d, hover: HoverTool, **further: Any) -> Any:
    """Return an empty figure whose x axis is `along`; figures with the same `along` move together.

    The page sets the colours of text and lines (page.js).
    """
    wheel = WheelZoomTool(dimensions="width", modifiers=_WITH)
    drag = PanTool(dimensions="width")
    made = figure(
        name=name,
        height=height,
        sizing_mode="stretch_width",
        x_range=along,
        tools=[drag, BoxZoomTool(dimensions="width"), wheel, ResetTool(), hover],
        active_drag=drag,
        active_scroll=wheel,
        background_fill_color=None,
        border_fill_color=None,
        outline_line_color=None,
        toolbar_location="right",
        min_border_left=90,
        **further,
    )
    made.toolbar.logo = None
    made.toolbar.autohide = True
    made.xgrid.visible = False
    for axis in (*made.xaxis, *made.yaxis):
        axis.axis_label_text_font_style = "normal"
        axis.minor_tick_line_color = None
    return made


def through(end: float) -> Range1d:
    """Return the range of an axis from 0 to `end`, which zooming and moving cannot leave."""
    return Range1d(0.0, end, bounds=(0.0, end), min_interval=end * 1e-5)
