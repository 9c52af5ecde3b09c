"""How all figures of the page look: no frame, time to the right, tools that appear on demand."""

from typing import Any

from bokeh.models import (
    BoxZoomTool,
    HoverTool,
    PanTool,
    Range1d,
    ResetTool,
    WheelZoomTool,
)
from bokeh.plotting import figure

_WITH = {"shift": True}  # a wheel alone goes on scrolling the page


def blank(*, name: str, height: int, along: Range1d, hover: HoverTool, **further: Any) -> Any:
    """A figure whose x axis is `along`; figures that share it move together.

    Colours of text and lines are those of the page, which sets them (page.js).
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
    """From nothing to the end, and never beyond."""
    return Range1d(0.0, end, bounds=(0.0, end), min_interval=end * 1e-5)
