"""The timeline of a run as a chart to zoom: the boxes of `plots.pipeline`, each with its times."""

from collections.abc import Sequence

import numpy as np
from bokeh.models import CustomJSHover, HoverTool, Range1d
from matplotlib.colors import to_hex

from sim.engine.timeline import Columns, Role, Timeline
from sim.engine.timeline_columns import columns_of
from sim.interface.page.figures import blank
from sim.interface.page.page import Chart
from sim.interface.plots.pipeline import row_label
from sim.interface.plots.pipeline_boxes import (
    PASS_HEIGHT,
    TOP,
    Boxes,
    Entry,
    Indices,
    boxes_of,
    legend,
    rows_of,
)
from sim.results.formatting import count, several, time_unit

_MOST_ROWS, _MOST_BOXES = 64, 40_000  # a box takes about 30 bytes of the page


def chart(
    timeline: Timeline, along: Range1d, *, of: str, name: str = "timeline", end: float | None = None
) -> Chart:
    """Return the timeline with a row for each role (ranks that do the same). If there are too many
    rows, some are left out, and `says` has their number. The unit of times suits `end` (s), by
    default the timeline's end."""
    scale, unit = time_unit(end or timeline.end)
    columns = columns_of(timeline)
    rows = rows_of(timeline.roles, _rows(timeline, columns))
    boxes = boxes_of(columns, rows, scale)
    meanings, told = _told(boxes)
    hover = _hover(rows, meanings, unit)
    made = blank(
        name=name,
        height=90 + max(18, min(34, 700 // max(len(rows), 1))) * max(len(rows), 3),
        along=along,
        hover=hover,
        y_range=Range1d(len(rows) - 0.45, -0.55),
        x_axis_label=f"time ({unit})",
    )
    made.ygrid.visible = False
    made.yaxis.ticker = [row + TOP + PASS_HEIGHT / 2 for row in range(len(rows))]
    made.yaxis.major_label_overrides = {
        row + TOP + PASS_HEIGHT / 2: row_label(role) for row, role in enumerate(rows)
    }
    made.yaxis.major_tick_line_color = None
    made.quad("left", "right", "top", "bottom", source=_source(boxes, told),
              fill_color="colour", line_color=None)  # fmt: skip
    hidden = len(timeline.roles) - len(rows)
    left_out = f" {count(hidden)} more rows are left out." if hidden else ""
    return Chart(
        name=name,
        figure=made,
        says=f"Timeline of {of}: {several(len(rows), 'row')}, one for each group of ranks that do "
        f"the same, with {count(len(boxes))} passes and transfers.{left_out}",
        legend={entry.meaning: _background(entry) for entry in legend(boxes)},
    )


def _told(boxes: Boxes) -> tuple[list[str], Indices]:
    """Return the meanings of boxes with their chunks, and the index of each box's meaning."""
    kinds, places = np.unique(np.stack((boxes.meaning, boxes.chunk)), axis=1, return_inverse=True)
    names = [
        boxes.meanings[meaning] + (f" (chunk {chunk})" if chunk >= 0 else "")
        for meaning, chunk in kinds.T.tolist()
    ]
    return names, places.reshape(-1)


def _background(entry: Entry) -> str:
    """Return the CSS colour of a legend's entry, or a gradient of its shades."""
    colours = [to_hex(colour) for colour in entry.colours]
    return colours[0] if len(colours) == 1 else f"linear-gradient(90deg, {', '.join(colours)})"


def _rows(timeline: Timeline, columns: Columns) -> int:
    """Return the number of roles for which the page has room, at least 1."""
    each = np.bincount(columns.role, minlength=len(timeline.roles))[:_MOST_ROWS]
    return max(int((np.cumsum(each) <= _MOST_BOXES).sum()), 1) if timeline.roles else 0


def _source(boxes: Boxes, told: Indices) -> dict[str, np.ndarray]:
    opaque = np.ones((len(boxes), 1))
    return {
        "left": boxes.left.astype(np.float32),
        "right": boxes.right.astype(np.float32),
        "top": (boxes.top + boxes.height).astype(np.float32),  # the axis points down
        "bottom": boxes.top.astype(np.float32),
        "colour": np.rint(255 * np.hstack((boxes.colour, opaque))).astype(np.uint8),
        "meaning": told.astype(np.uint16),
        "microbatch": boxes.number.astype(np.int32),
    }


def _hover(rows: Sequence[Role], meanings: list[str], unit: str) -> HoverTool:
    names = CustomJSHover(args={"names": meanings}, code="return names[value]")
    role = CustomJSHover(
        args={"names": [row_label(role) for role in rows]}, code="return names[Math.round(value)]"
    )
    number = CustomJSHover(code="return value < 0 ? '-' : String(value)")
    return HoverTool(
        tooltips=[
            ("row", "@bottom{custom}"),
            ("what", "@meaning{custom}"),
            ("microbatch", "@microbatch{custom}"),
            ("from", f"@left{{0,0.000000}} {unit}"),
            ("to", f"@right{{0,0.000000}} {unit}"),
        ],
        formatters={"@bottom": role, "@meaning": names, "@microbatch": number},
        attachment="below",
    )
