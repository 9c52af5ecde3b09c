"""Draw a sweep: step time and memory against the varied keys."""

from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes

from sim.analysis.sweeps.answer import Sweep
from sim.interface.plots.picture import PALETTE, Figure
from sim.uncertainty.intervals import LEVEL

if TYPE_CHECKING:
    import pandas as pd

_GIB = 2.0**30
_MOST_LINES = 12
_BARS = 0.8  # width of a group of bars, as a share of the distance between two names
_PANELS = (
    ("step_time", "step time (s)", 1.0),
    ("tokens_per_second", "tokens a second", 1.0),
    ("memory.total", "memory of the fullest GPU (GiB)", _GIB),
    ("time", "time of the run (s)", 1.0),
    ("updates_per_second", "updates a second", 1.0),
)


def figure(sweep: Sweep, of: str = "") -> Figure:
    """Put the key with the most values on the x-axis, and draw a line for each combination of the
    other keys. Values that are names have bars instead. Points that do not fit into memory are
    hollow. `of` names a single column to draw."""
    frame = sweep.frame
    known = [panel for panel in _PANELS if panel[0] in frame and frame[panel[0]].notna().any()]
    panels = [panel for panel in known if panel[0] == of] or [(of, of, 1.0)] if of else known
    along, others = _axes_of(frame)
    fig = Figure(figsize=(4.2 * max(len(panels), 1), 3.8), layout="constrained")
    names = list(dict.fromkeys(_said(value) for value in frame[along]))
    for axes, (column, label, unit) in zip(
        fig.subplots(1, max(len(panels), 1), squeeze=False)[0], panels, strict=False
    ):
        lines = _lines(frame, others)
        for number, (name, rows) in enumerate(lines):
            colour, read = PALETTE[number % len(PALETTE)], (along, column, unit)
            if any(value[:1].isdigit() for value in names):
                _line(axes, rows, read, names, name, colour)
            else:
                _bars(axes, rows, read, names, name, colour, (number, len(lines)))
        if column == "memory.total" and frame["capacity"].nunique() == 1:
            room = frame["capacity"].dropna().iloc[0] / unit
            axes.axhline(room, color="grey", linestyle=":", label="memory of a GPU")
        axes.set_title(label, fontsize=10, loc="left")
        axes.set_xticks(range(len(names)), names, rotation=30 if len(names) > 5 else 0)
        axes.set_xlabel(along)
        axes.set_ylim(0.0, 1.05 * axes.get_ylim()[1])
        axes.spines[["right", "top"]].set_visible(False)
    handles = {name: line for axes in fig.axes
               for line, name in zip(*axes.get_legend_handles_labels(), strict=True)}  # fmt: skip
    if not frame["valid"].all():
        hollow = fig.axes[0].scatter([], [], facecolor="white", edgecolor="0.3")
        handles["does not fit into memory"] = hollow
    if handles:
        fig.legend(handles.values(), handles, frameon=False, fontsize=8, ncols=6,
                   loc="outside lower left")  # fmt: skip
    fig.suptitle(sweep.scenario, x=0.01, ha="left", fontweight="bold")
    return fig


def _axes_of(frame: "pd.DataFrame") -> tuple[str, list[str]]:
    varied = [key for key in frame.attrs["varied"] if key in frame]
    along = max(varied, key=lambda key: frame[key].map(_said).nunique())
    return along, [key for key in varied if key != along]


def _lines(frame: "pd.DataFrame", others: list[str]) -> list[tuple[str, "pd.DataFrame"]]:
    if not others:
        return [("", frame)]
    names = frame[others].map(_said).apply(lambda row: _named(others, row), axis=1)
    return [(str(name), rows) for name, rows in frame.groupby(names, sort=False)][:_MOST_LINES]


def _named(keys: list[str], values: Any) -> str:
    pairs = zip(keys, values, strict=True)
    return ", ".join(f"{key.rpartition('.')[2]} {value}" for key, value in pairs)


def _line(
    axes: Axes,
    rows: "pd.DataFrame",
    read: tuple[str, str, float],
    names: list[str],
    name: str,
    colour: str,
) -> None:
    along, column, unit = read
    there = rows[rows[column].notna()]
    at = [names.index(_said(cell)) for cell in there[along]]
    values = [float(cell) / unit for cell in there[column]]
    axes.plot(at, values, color=colour, linewidth=1.2, label=name or None)
    for fits, face in ((True, colour), (False, "white")):
        chosen = [n for n, valid in enumerate(there["valid"]) if bool(valid) == fits]
        axes.scatter([at[n] for n in chosen], [values[n] for n in chosen], s=28, zorder=3,
                     facecolor=face, edgecolor=colour)  # fmt: skip
    spread = f"samples.{column}.spread"
    if spread in there:  # several seeds were run
        off = [float(cell) / unit for cell in there[spread].fillna(0.0)]
        axes.errorbar(at, values, off, color=colour, linestyle="", capsize=3)
    low, high = (f"{column}_{bound}" for bound in ("low", "high"))
    if low in there:
        below, above = ([float(cell) / unit for cell in there[key]] for key in (low, high))
        band = f"{100.0 * LEVEL:.0f} % of measured runs"
        axes.fill_between(at, below, above, color=colour, alpha=0.12, linewidth=0, label=band)


def _bars(
    axes: Axes,
    rows: "pd.DataFrame",
    read: tuple[str, str, float],
    names: list[str],
    name: str,
    colour: str,
    place: tuple[int, int],
) -> None:
    """Draw groups of bars and no line, because nothing lies between two values that are names."""
    along, column, unit = read
    number, count = place
    there = rows[rows[column].notna()]
    left = (number + 0.5) / count - 0.5
    at = [names.index(_said(cell)) + _BARS * left for cell in there[along]]
    faces = [colour if bool(fits) else "white" for fits in there["valid"]]
    axes.bar(at, [float(cell) / unit for cell in there[column]], _BARS / count, color=faces,
             edgecolor=colour, label=name or None)  # fmt: skip


def _said(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
