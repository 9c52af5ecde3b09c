"""Draw the pipeline: a row for each role (ranks that do the same), time to the right.

Forward passes are blue and backward passes orange. Separate passes for input gradients and weight
gradients are yellow and green. Chunks are darker or lighter, and later microbatches of a chunk are
paler. All other work has the colour of its cause (`sim.program.causes`). Blank parts of a row are
the bubble: the compute stream is idle.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.legend_handler import HandlerTuple
from matplotlib.patches import Patch

from sim.config.readable import human_seconds
from sim.engine.timeline import Columns, Role, Timeline
from sim.engine.timeline_columns import columns_of
from sim.interface.plots.picture import Figure
from sim.interface.plots.pipeline_boxes import (
    PASS_HEIGHT,
    TOP,
    Boxes,
    Colour,
    Floats,
    boxes_of,
    legend,
    rows_of,
)
from sim.results.answer import Answer
from sim.results.formatting import time_unit

ROW, _LABEL = (0.955, 0.955, 0.955), (0.35, 0.35, 0.35)
_MOST_ROWS, _MOST_NUMBERS = 64, 600
_LEGEND_COLUMNS, _SHADES = 6, 5
_LEAST_ROWS = 8  # each of several timelines may have as many rows
_WIDTH = 14.0  # inches


def figure(timeline: Timeline, *, title: str = "", shown: str = "") -> Figure:
    """Draw a row for each role, at most 64. `shown` is the text beside the title that says which
    part of the run is drawn, such as "the first 2 s of 30 s"; by default, a step."""
    fig, axes = _sheet([min(len(timeline.roles), _MOST_ROWS)])
    _legend(fig, [_draw(axes[0], timeline, title, shown, timeline.end)])
    return fig


def figures(timelines: Sequence[tuple[str, Timeline]], *, shown: Sequence[str] = ()) -> Figure:
    """Draw several timelines with their titles below one another, on the scale of the longest."""
    most = max(_LEAST_ROWS, _MOST_ROWS // (2 * max(len(timelines), 1)))
    fig, axes = _sheet([min(len(timeline.roles), most) for _, timeline in timelines])
    end = max((timeline.end for _, timeline in timelines), default=0.0)
    drawn: list[Boxes] = []
    for number, (title, timeline) in enumerate(timelines):
        note = shown[number] if shown else ""
        drawn.append(_draw(axes[number], timeline, title, note, end, most))
        if number < len(timelines) - 1:
            axes[number].set_xlabel("")
            axes[number].tick_params(axis="x", labelbottom=False)
    if drawn:
        _legend(fig, drawn)
    return fig


def _sheet(rows: Sequence[int]) -> tuple[Figure, list[Axes]]:
    """Return a figure with axes below one another; `rows` is the number of rows of each."""
    heights = [0.5 + max(0.5 * n, 1.0) if n < 24 else 0.5 + 0.3 * n for n in rows or [0]]
    fig = Figure(figsize=(_WIDTH, 1.0 + sum(heights)), layout="constrained")
    axes = fig.subplots(len(heights), 1, squeeze=False, height_ratios=heights)
    return fig, list(axes[:, 0])


def _draw(
    axes: Axes, timeline: Timeline, title: str, shown: str, end: float, most: int = _MOST_ROWS
) -> Boxes:
    rows, columns = rows_of(timeline.roles, most), columns_of(timeline)
    drawn = boxes_of(columns, rows, time_unit(end)[0])
    _frame(axes, timeline, rows, title, shown, end)
    _busy(axes, timeline, columns, rows)
    _fill(axes, drawn)
    _number(axes, drawn)
    return drawn


def _frame(
    axes: Axes, timeline: Timeline, rows: Sequence[Role], title: str, shown: str, longest: float
) -> None:
    scale, unit = time_unit(longest)
    axes.set_xlim(0.0, longest / scale or 1.0)
    axes.set_ylim(max(len(rows), 1) - 0.5, -0.55)
    for row in range(len(rows)):
        axes.axhspan(
            row + TOP,
            row + TOP + PASS_HEIGHT,
            xmax=timeline.end / longest if longest else 1.0,
            facecolor=ROW,
            zorder=0,
        )
    axes.set_xlabel(f"time ({unit})")
    axes.set_yticks([row + TOP + PASS_HEIGHT / 2 for row in range(len(rows))], map(row_label, rows))
    axes.tick_params(axis="y", length=0)
    axes.spines[["left", "right", "top"]].set_visible(False)
    axes.set_title(title, loc="left", fontweight="bold", parse_math=False)
    axes.set_title(
        shown or f"step {human_seconds(timeline.step or timeline.end)}",
        loc="right",
        fontsize=10,
        color=_LABEL,
    )
    hidden = len(timeline.roles) - len(rows)
    if hidden:
        axes.set_ylabel(f"{hidden} more roles are not drawn", color=_LABEL)


def row_label(role: Role) -> str:
    notes = [f"{role.ranks} ranks"] if role.ranks > 1 else []
    notes += [f"{role.slowdown:g}x slower"] if role.slowdown != 1.0 else []
    return role.name + (f" ({', '.join(notes)})" if notes else "")


def _busy(axes: Axes, timeline: Timeline, columns: Columns, rows: Sequence[Role]) -> None:
    """Write, to the right of each row, the share of the step in which its compute stream runs."""
    seconds = (columns.end - columns.begin)[columns.computes]
    roles, count = columns.role[columns.computes], len(timeline.roles)
    busy = np.bincount(roles, seconds, minlength=count) / (timeline.end or 1.0)
    style: dict[str, Any] = {"color": _LABEL, "fontsize": 9, "va": "center", "ha": "left"}
    for row, role in enumerate(rows):
        axes.text(
            1.008,
            row - 0.14,
            f"{busy[role.index]:.0%}",
            transform=axes.get_yaxis_transform(),
            **style,
        )
    axes.text(1.008, 1.0, "busy", transform=axes.transAxes, **(style | {"va": "bottom"}))


def _fill(axes: Axes, boxes: Boxes) -> None:
    """Draw all boxes as a single collection, which is fast for thousands of boxes."""
    if not len(boxes):
        return
    sides = np.stack((boxes.left, boxes.right, boxes.top, boxes.top + boxes.height), axis=1)
    corners, wide = sides[:, [[0, 2], [1, 2], [1, 3], [0, 3]]], _points(axes, boxes)
    # White edges separate passes that are wide enough; a thin edge keeps each transfer visible.
    lines = np.where(boxes.passes, np.where(wide > 4, 0.4, np.where(wide > 2, 0.15, 0.0)), 0.25)
    edges = np.where(boxes.passes[:, None], 1.0, boxes.colour)
    collection = PolyCollection(
        list(corners), facecolors=boxes.colour, edgecolors=edges, linewidths=lines
    )
    collection.set_snap(False)
    axes.add_collection(collection, autolim=False)


def _points(axes: Axes, boxes: Boxes) -> Floats:
    """Return the width of boxes in points (1/72 inch); axes are about 4/5 of the figure's width."""
    left, right = axes.get_xlim()
    points: Floats = 0.8 * _WIDTH * 72 * (boxes.right - boxes.left) / (right - left)
    return points


def _number(axes: Axes, boxes: Boxes) -> None:
    """Write microbatch numbers on each kind of pass whose boxes have room for the longest
    number."""
    wide = _points(axes, boxes)
    for meaning in np.unique(boxes.meaning[boxes.number >= 0]).tolist():
        numbered = np.flatnonzero((boxes.meaning == meaning) & (boxes.number >= 0))
        longest = len(str(boxes.number[numbered].max()))
        if wide[numbered].min() > 3.9 * longest + 1.5 and len(numbered) <= _MOST_NUMBERS:
            ink = _ink(boxes.colour[numbered[0]])
            for box in numbered.tolist():
                _write_number(axes, boxes, box, ink)


def _ink(paper: Floats) -> str:
    """Return black or white, whichever is easier to read on this colour (luma of Rec. 601)."""
    red, green, blue = paper
    return "white" if 0.299 * red + 0.587 * green + 0.114 * blue < 0.5 else "black"


def _write_number(axes: Axes, boxes: Boxes, box: int, ink: str) -> None:
    axes.text(
        (boxes.left[box] + boxes.right[box]) / 2,
        boxes.top[box] + boxes.height[box] / 2,
        str(boxes.number[box]),
        fontsize=6.5,
        ha="center",
        va="center_baseline",
        color=ink,
        clip_on=True,
    )


def _legend(fig: Figure, drawn: Sequence[Boxes]) -> None:
    """Draw the legend: an entry for each visible kind of box, with a patch for each colour."""
    widths: dict[str, float] = {}
    for boxes in drawn:
        wide = np.bincount(boxes.meaning, _points(fig.axes[0], boxes), len(boxes.meanings))
        for meaning, points in zip(boxes.meanings, wide.tolist(), strict=True):
            widths[meaning] = widths.get(meaning, 0.0) + points
    entries = [
        entry for entry in legend(*drawn) if widths[entry.meaning.partition(", chunks")[0]] > 0.5
    ]
    shades: list[tuple[Patch, ...]] = [
        tuple(Patch(facecolor=colour) for colour in _few(entry.colours)) for entry in entries
    ]
    shades.append((Patch(facecolor=ROW, edgecolor=_LABEL, linewidth=0.3),))
    labels = [*(entry.meaning for entry in entries), "waiting (bubble)"]
    fig.legend(
        handles=shades,
        labels=labels,
        handler_map={tuple: HandlerTuple(ndivide=None, pad=0)},
        loc="outside lower center",
        ncols=len(labels) if len(labels) <= _LEGEND_COLUMNS + 1 else _LEGEND_COLUMNS,
        frameon=False,
        fontsize=9,
    )


def _few(colours: Sequence[Colour]) -> Sequence[Colour]:
    """Return the first, the last and some colours between, as many as an entry has room for."""
    places = np.unique(np.linspace(0, len(colours) - 1, min(len(colours), _SHADES)).astype(int))
    return [colours[place] for place in places]


def run(answer: Answer) -> Figure:
    """Draw a row for each role over a step, or over the first steps of workers that share
    updates."""
    assert answer.excerpt is not None  # all answers with this picture have an excerpt
    return figure(answer.excerpt, title=answer.title, shown=answer.excerpt_name)
