"""The pipeline as a picture: one row a role, time to the right.

Forward passes are blue and backward passes orange, their chunk darker or lighter, later
microbatches paler within a chunk; other communication and the optimizer have colours of their own
(Okabe and Ito's palette, which colour-blind readers can tell apart). What a stage's compute stream
does not fill is left blank: the bubble.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.config.files import atomic_write
from sim.config.units import human_seconds
from sim.engine.timeline import Role, Span, Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Colour = tuple[float, float, float]

_FORWARD, _BACKWARD = (0.0, 0.447, 0.698), (0.902, 0.45, 0.0)
_OTHERS: dict[str, Colour] = {
    "optimizer": (0.0, 0.62, 0.451),
    "pipeline communication": (0.25, 0.25, 0.25),
    "data communication": (0.8, 0.475, 0.655),
    "embedding communication": (0.55, 0.2, 0.45),
    "tensor communication": (0.94, 0.894, 0.259),
    "context communication": (0.72, 0.66, 0.1),
    "push": (0.337, 0.706, 0.914),
    "pull": (0.8, 0.475, 0.655),
}
_GREY: Colour = (0.6, 0.6, 0.6)
_ROW, _LABEL = (0.955, 0.955, 0.955), (0.35, 0.35, 0.35)
_LANE, _MAIN = 0.13, 0.62  # heights within a row of height 1
_MOST_ROWS, _MOST_NUMBERS = 64, 600
_WIDTH, _DPI = 14.0, 150  # inches, dots an inch


def draw(timeline: Timeline, path: Path | str, *, title: str = "") -> None:
    """Draw the timeline into a PNG or SVG file, whole or not at all.

    Raises `InputError` where the file cannot be written.
    """
    with atomic_write(path) as part:
        part.write_bytes(render(timeline, part.suffix.removeprefix(".") or "png", title=title))


def render(timeline: Timeline, kind: str = "png", *, title: str = "") -> bytes:
    """The picture itself as the bytes of a "png" or "svg" file, the same for the same timeline."""
    import matplotlib as mpl

    buffer = BytesIO()
    metadata: dict[str, Any] = {"Date": None} if kind == "svg" else {"Software": None}
    with mpl.rc_context({"svg.hashsalt": "sim", "svg.fonttype": "none"}):
        figure(timeline, title=title).savefig(buffer, format=kind, dpi=_DPI, metadata=metadata)
    return buffer.getvalue()


def figure(timeline: Timeline, *, title: str = "") -> "Figure":
    """The picture as a matplotlib figure, to change or to show in a notebook."""
    from matplotlib.figure import Figure

    rows = timeline.roles[:_MOST_ROWS]
    height = 1.5 + max(0.5 * len(rows), 1.0) if len(rows) < 24 else 1.5 + 0.3 * len(rows)
    fig = Figure(figsize=(_WIDTH, height), layout="constrained")
    axes = fig.add_subplot()
    boxes = list(_boxes(timeline, len(rows)))
    _frame(axes, timeline, rows, title)
    _fill(axes, boxes)
    _number(axes, boxes)
    _legend(fig, boxes)
    return fig


@dataclass(frozen=True, slots=True)
class _Box:
    """A coloured rectangle and what it says."""

    left: float
    right: float
    top: float
    height: float
    colour: Colour
    meaning: str
    number: str = ""


def _boxes(timeline: Timeline, rows: int) -> Iterator[_Box]:
    chunks = 1 + max((span.args.get("chunk", 0) for span in timeline.spans), default=0)
    last = max((span.args.get("microbatch", 0) for span in timeline.spans), default=0)
    lanes = _lanes(timeline.spans)
    scale = _unit(timeline.end)[0]
    for span in timeline.spans:
        if span.role >= rows:
            continue
        if "parts" in span.args or "phase" in span.args:
            yield _pass_box(span, chunks, last, scale)
        else:
            for cause, begin, end in _flights(span):
                top = span.role - 0.45 + _MAIN + _LANE * lanes[cause]
                colour = _OTHERS.get(cause, _GREY)
                yield _Box(begin / scale, end / scale, top, 0.85 * _LANE, colour, cause)


def _pass_box(span: Span, chunks: int, last: int, scale: float) -> _Box:
    phase, microbatch = span.args.get("phase", ""), span.args.get("microbatch", -1)
    place = span.start / scale, span.end / scale, span.role - 0.45, _MAIN
    if phase not in ("F", "B"):
        meaning = "other compute" if span.cause == "compute" else span.cause
        return _Box(*place, _OTHERS.get(span.cause, _GREY), meaning)
    chunk = span.args.get("chunk", 0)
    base, meaning = (_FORWARD, "forward") if phase == "F" else (_BACKWARD, "backward")
    colour = _shade(base, chunk, chunks, microbatch / max(last, 1))
    meaning += f" (chunk {chunk})" if chunks > 1 else ""
    return _Box(*place, colour, meaning, str(microbatch))


def _shade(base: Colour, chunk: int, chunks: int, progress: float) -> Colour:
    """Chunks from dark to light, and within a chunk a little lighter from first to last."""
    step = chunk / (chunks - 1) if chunks > 1 else 0.45
    return _mix(base, -0.38 + 0.84 * step + 0.14 * progress)


def _mix(colour: Colour, light: float) -> Colour:
    """Towards white by `light` in 0 ... 1, towards black below 0.

    >>> _mix((0.0, 0.5, 1.0), 0.5), _mix((0.0, 0.5, 1.0), -0.5)
    ((0.5, 0.75, 1.0), (0.0, 0.25, 0.5))
    """
    red, green, blue = (c + (1.0 - c) * light if light > 0 else c * (1.0 + light) for c in colour)
    return red, green, blue


def _flights(span: Span) -> Iterable[tuple[str, float, float]]:
    """What is in flight of a meeting, without the waiting before it."""
    if "transfers" in span.args:
        return [(cause, begin, end) for cause, _, begin, end in span.args["transfers"]]
    return [(span.cause, span.start, span.end)]


def _lanes(spans: Iterable[Span]) -> dict[str, int]:
    """Pipeline communication in the first lane under the passes, all other in the second."""
    causes = dict.fromkeys(cause for span in spans for cause, _, _ in _flights(span))
    return {cause: int(cause != "pipeline communication") for cause in causes}


def _unit(end: float) -> tuple[float, str]:
    """The unit in which a reader would give the length of the step."""
    return next(
        ((scale, name) for scale, name in ((1.0, "s"), (1e-3, "ms")) if end >= scale),
        (1e-6, "us"),
    )


def _frame(axes: "Axes", timeline: Timeline, rows: Sequence[Role], title: str) -> None:
    scale, unit = _unit(timeline.end)
    end = timeline.end / scale
    axes.set_xlim(0.0, end or 1.0)
    axes.set_ylim(max(len(rows), 1) - 0.5, -0.55)
    for row in range(len(rows)):
        axes.axhspan(row - 0.45, row - 0.45 + _MAIN, facecolor=_ROW, zorder=0)
    axes.set_xlabel(f"time ({unit})")
    axes.set_yticks([row - 0.45 + _MAIN / 2 for row in range(len(rows))], map(_row_label, rows))
    axes.tick_params(axis="y", length=0)
    axes.spines[["left", "right", "top"]].set_visible(False)
    axes.set_title(title, loc="left", fontweight="bold", parse_math=False)
    axes.set_title(f"step {human_seconds(timeline.end)}", loc="right", fontsize=10, color=_LABEL)
    hidden = len(timeline.roles) - len(rows)
    if hidden:
        axes.set_ylabel(f"{hidden} more roles are not drawn", color=_LABEL)
    _busy(axes, timeline, rows)


def _row_label(role: Role) -> str:
    notes = [f"{role.ranks} ranks"] if role.ranks > 1 else []
    notes += [f"{role.slowdown:g}x slower"] if role.slowdown != 1.0 else []
    return role.name + (f" ({', '.join(notes)})" if notes else "")


def _busy(axes: "Axes", timeline: Timeline, rows: Sequence[Role]) -> None:
    """To the right of each row, the share of the step in which its compute stream runs."""
    busy = [0.0] * len(timeline.roles)
    for span in timeline.spans:
        if "parts" in span.args or "phase" in span.args:
            busy[span.role] += span.duration / timeline.end
    style: dict[str, Any] = {"color": _LABEL, "fontsize": 9, "va": "center", "ha": "left"}
    for role in rows:
        axes.text(
            1.008,
            role.index - 0.14,
            f"{busy[role.index]:.0%}",
            transform=axes.get_yaxis_transform(),
            **style,
        )
    axes.text(1.008, 1.0, "busy", transform=axes.transAxes, **(style | {"va": "bottom"}))


def _fill(axes: "Axes", boxes: Sequence[_Box]) -> None:
    """All boxes as one collection: thousands are drawn as fast as a few."""
    import numpy as np
    from matplotlib.collections import PolyCollection

    if not boxes:
        return
    sides = np.array([(b.left, b.right, b.top, b.top + b.height) for b in boxes])
    corners = sides[:, [[0, 2], [1, 2], [1, 3], [0, 3]]]
    wide = np.array([_points(axes, box) for box in boxes])
    passes = np.array([box.height == _MAIN for box in boxes])
    # White edges part passes that are wide enough; a transfer keeps a hair's width to be seen.
    lines = np.where(passes, np.where(wide > 4, 0.4, np.where(wide > 2, 0.15, 0.0)), 0.25)
    edges = [(1.0, 1.0, 1.0) if box.height == _MAIN else box.colour for box in boxes]
    collection = PolyCollection(
        list(corners), facecolors=[b.colour for b in boxes], edgecolors=edges, linewidths=lines
    )
    collection.set_snap(False)
    axes.add_collection(collection, autolim=False)


def _points(axes: "Axes", box: _Box) -> float:
    """The width of a box on paper, in points of 1/72 inch; the axes take about 4/5 of the paper."""
    left, right = axes.get_xlim()
    return 0.8 * _WIDTH * 72 * (box.right - box.left) / (right - left)


def _number(axes: "Axes", boxes: Sequence[_Box]) -> None:
    """Microbatch numbers, for each kind of pass whose boxes hold the longest of them."""
    kinds: dict[str, list[_Box]] = {}
    for box in boxes:
        if box.number:
            kinds.setdefault(box.meaning, []).append(box)
    for numbered in kinds.values():
        room = min(_points(axes, box) for box in numbered)
        longest = max(len(box.number) for box in numbered)
        if room > 3.9 * longest + 1.5 and len(numbered) <= _MOST_NUMBERS:
            ink = _ink(numbered[0].colour)
            for box in numbered:
                _write_number(axes, box, ink)


def _ink(paper: Colour) -> str:
    """Black or white, whichever is read better on that colour (luma of Rec. 601)."""
    red, green, blue = paper
    return "white" if 0.299 * red + 0.587 * green + 0.114 * blue < 0.5 else "black"


def _write_number(axes: "Axes", box: _Box, ink: str) -> None:
    axes.text(
        (box.left + box.right) / 2,
        box.top + box.height / 2,
        box.number,
        fontsize=6.5,
        ha="center",
        va="center_baseline",
        color=ink,
        clip_on=True,
    )


def _legend(fig: "Figure", boxes: Sequence[_Box]) -> None:
    """One patch for each colour that can be seen; forward above backward, chunk by chunk."""
    from matplotlib.patches import Patch

    widths: dict[str, float] = {}
    colours: dict[str, Colour] = {}
    for box in boxes:
        widths[box.meaning] = widths.get(box.meaning, 0.0) + _points(fig.axes[0], box)
        colours.setdefault(box.meaning, box.colour)
    seen = sorted((meaning for meaning, width in widths.items() if width > 0.5), key=_legend_place)
    handles = [Patch(facecolor=colours[meaning], label=meaning) for meaning in seen]
    handles.append(Patch(facecolor=_ROW, edgecolor=_LABEL, linewidth=0.3, label="waiting (bubble)"))
    columns = len(handles) if len(handles) < 8 else -(-len(handles) // 2)
    fig.legend(
        handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize=9
    )


def _legend_place(meaning: str) -> tuple[int, str, str]:
    kind, _, chunk = meaning.partition(" (chunk ")
    order = ("forward", "backward", "optimizer", "pipeline communication")
    place = order.index(kind) if kind in order else len(order)
    return max(place, 1), chunk.zfill(4), f"{place}{kind}"
