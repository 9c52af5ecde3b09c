"""The timeline of a run to zoom into: what `plots.pipeline` draws, every box with its times."""

from collections import Counter

import numpy as np
from bokeh.models import CustomJSHover, HoverTool, Range1d
from matplotlib.colors import to_hex

from sim.engine.timeline import Role, Timeline
from sim.interface.page.figures import blank
from sim.interface.page.page import Chart
from sim.interface.plots.pipeline import row_label
from sim.interface.plots.pipeline_boxes import PASS_HEIGHT, TOP, Box, Entry, boxes_of, legend
from sim.results.formatting import count, several, time_unit

_MOST_ROWS, _MOST_BOXES = 64, 40_000  # some 30 bytes of page a box


def chart(
    timeline: Timeline, along: Range1d, *, of: str, name: str = "timeline", end: float | None = None
) -> Chart:
    """One row a role; rows that the page has no room for are left out, and it says so. Times are
    in the unit of the `end` of `along`, by default the timeline's own (s)."""
    scale, unit = time_unit(end or timeline.end)
    rows = timeline.roles[: _rows(timeline)]
    boxes = list(boxes_of(timeline, len(rows), scale))
    meanings = sorted({box.told for box in boxes})
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
    made.quad("left", "right", "top", "bottom", source=_columns(boxes, meanings),
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


def _background(entry: Entry) -> str:
    """The colour of an entry, or its shades from left to right."""
    colours = [to_hex(colour) for colour in entry.colours]
    return colours[0] if len(colours) == 1 else f"linear-gradient(90deg, {', '.join(colours)})"


def _rows(timeline: Timeline) -> int:
    """As many roles as there is room for, at least one."""
    spans, boxes = Counter(span.role for span in timeline.spans), 0
    for number, role in enumerate(timeline.roles[:_MOST_ROWS]):
        boxes += spans[role.index]
        if boxes > _MOST_BOXES:
            return max(number, 1)
    return min(len(timeline.roles), _MOST_ROWS)


def _columns(boxes: list[Box], meanings: list[str]) -> dict[str, np.ndarray]:
    places = np.array([(b.left, b.right, b.top, b.top + b.height) for b in boxes], dtype=np.float32)
    left, right, top, bottom = places.reshape(-1, 4).T
    colours = [round(255 * part) for box in boxes for part in (*box.colour, 1.0)]
    number = {meaning: place for place, meaning in enumerate(meanings)}
    return {
        "left": left,
        "right": right,
        "top": bottom,  # the axis points down
        "bottom": top,
        "colour": np.array(colours, dtype=np.uint8).reshape(-1, 4),
        "meaning": np.array([number[box.told] for box in boxes], dtype=np.uint16),
        "microbatch": np.array([int(box.number or -1) for box in boxes], dtype=np.int32),
    }


def _hover(rows: tuple[Role, ...], meanings: list[str], unit: str) -> HoverTool:
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
