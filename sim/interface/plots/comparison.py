"""Draw jobs side by side as bars: the seconds of each job by cause, and its memory by part."""

from collections.abc import Mapping, Sequence
from itertools import cycle

from matplotlib.axes import Axes

from sim.analysis.comparison.figures import FigureComparison
from sim.analysis.comparison.lines import LineDifferences
from sim.analysis.comparison.steps import StepComparison
from sim.config.readable import human_bytes, human_seconds
from sim.interface.plots import pipeline
from sim.interface.plots.memory import OTHER, colour_of
from sim.interface.plots.picture import PALETTE, Figure
from sim.program import causes
from sim.program.causes import Cause
from sim.results.formatting import time_unit

_GIB = 2.0**30
_SHADES = {  # colours of causes that have none of their own in a timeline
    causes.COMPUTE: "#0072b2",
    causes.RECOMPUTE: "#6fb7e9",
    causes.BUBBLE: "#e0e0e0",
    causes.STRAGGLERS: "#5c5c5c",
}
_CAUSES = {
    str(cause): _SHADES.get(cause, cause.colour)
    for cause in vars(causes).values()
    if isinstance(cause, Cause)
}
_THIN = 2e-3  # share of the longest bar below which a part is not in the legend

_MOST = 12  # lines


def figure(compared: StepComparison) -> Figure:
    """Draw a row for each job: its step by cause, and the fullest GPU's memory by part, with a mark
    at the GPU's capacity. Steps of unequal batches are scaled to the first job's batch."""
    results, steps = compared.results, compared.parts[0].seconds
    fig = Figure(figsize=(12.0, 1.9 + 0.4 * len(results)), layout="constrained")
    left, right = fig.subplots(1, 2, sharey=True)
    unit, name = time_unit(max(sum(step.values()) for step in steps))
    subject = f"as {compared.amount}," if compared.amount else "step"
    _bars(left, steps, unit, _CAUSES, f"{subject} by cause ({name})")
    _end(left, [(sum(step.values()) / unit, human_seconds(sum(step.values()))) for step in steps])
    memory = [result.memory_per_gpu for result in results]
    shades = {name: colour_of(name) for parts in memory for name in parts}
    _bars(right, memory, _GIB, shades, "memory of the fullest GPU (GiB), and what it has")
    rooms = [result.capacity / _GIB for result in results]
    rows = range(len(results))
    right.vlines(rooms, [row - 0.4 for row in rows], [row + 0.4 for row in rows], color="black")
    sizes = [parts["total"] for parts in memory]
    colours = [PALETTE[6] if result.fits else PALETTE[1] for result in results]
    _end(right, [(size / _GIB, human_bytes(size)) for size in sizes], colours)
    right.set_xlim(0.0, max(right.get_xlim()[1], 1.05 * max(rooms)))
    left.set_yticks(rows, compared.names, parse_math=False)
    left.set_ylim(len(results) - 0.5, -0.5)
    return fig


def _bars(
    axes: Axes,
    rows: Sequence[Mapping[str, float]],
    unit: float,
    colours: Mapping[str, str],
    title: str,
) -> None:
    """Draw the parts of each row one after the other, in the order of `colours`."""
    names = {name for row in rows for name in row} - {"total"}
    longest = max(sum(row.get(name, 0.0) for name in names) for row in rows)
    known = list(colours)
    ends = [0.0] * len(rows)
    for name in sorted(names, key=lambda name: known.index(name) if name in known else len(known)):
        widths = [row.get(name, 0.0) / unit for row in rows]
        seen = max(widths) * unit > _THIN * longest
        axes.barh(range(len(rows)), widths, left=ends, height=0.66,
                  color=colours.get(name, OTHER), label=name if seen else None)  # fmt: skip
        ends = [end + width for end, width in zip(ends, widths, strict=True)]
    axes.set_title(title, loc="left", fontsize=10)
    axes.legend(loc="upper left", bbox_to_anchor=(0.0, -0.5 / len(rows)), ncols=3, frameon=False,
                fontsize=8)  # fmt: skip
    axes.tick_params(axis="y", length=0)
    axes.spines[["left", "right", "top"]].set_visible(False)


def _end(axes: Axes, words: Sequence[tuple[float, str]], colours: Sequence[str] = ()) -> None:
    """Write the sum of each row after its bar."""
    axes.set_xlim(0.0, 1.2 * max(at for at, _ in words))
    for row, (at, word) in enumerate(words):
        axes.annotate(
            word,
            (at, row),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
            color=colours[row] if colours else PALETTE[6],
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
        )


def timelines(compared: StepComparison) -> Figure:
    """Draw a panel for each job that has a timeline."""
    drawn = [(case.name, case.result.timeline) for case in compared.cases]
    return pipeline.figures([pair for pair in drawn if pair[1].roles])


def figures(compared: FigureComparison) -> Figure:
    """Draw a row for each job: its cost on the left, its parts one after the other on the right."""
    rows, part = range(len(compared.cases)), compared.parts[0]
    fig = Figure(figsize=(12.0, 1.9 + 0.4 * len(rows)), layout="constrained")
    left, right = fig.subplots(1, 2, sharey=True)
    unit, name = time_unit(max(compared.costs))
    left.barh(rows, [cost / unit for cost in compared.costs], color=PALETTE[0], height=0.66)
    left.set_title(f"{compared.cases[0].result.get('cost')[0]} ({name})", loc="left", fontsize=10)
    unit, name = time_unit(max(sum(seconds.values()) for seconds in part.seconds))
    keys = dict.fromkeys(key for seconds in part.seconds for key in seconds)
    colours = dict(zip(keys, cycle(PALETTE), strict=False))
    _bars(right, part.seconds, unit, colours, f"{part.title} ({name})")
    left.set_yticks(rows, compared.names, parse_math=False)
    left.set_ylim(len(rows) - 0.5, -0.5)
    return fig


def lines(answer: LineDifferences) -> Figure:
    """Draw the milliseconds that a step gains or loses. The bars of the causes add up to the
    step's difference; each line has a bar for its kernels."""
    lines = [line for line in answer.lines if line.seconds][:_MOST]
    causes = {cause: seconds for cause, seconds in answer.causes.items() if seconds}
    by_line = {line.after or line.before: line.seconds for line in lines}
    sizes = [max(len(bars), 1) for bars in (causes, by_line)]
    drawn = Figure(figsize=(8.0, 2.0 + 0.3 * sum(sizes)), layout="constrained")
    upper, lower = drawn.subplots(2, 1, sharex=True, height_ratios=sizes)
    _more_or_less(upper, causes, "the step, by cause")
    _more_or_less(lower, by_line, "kernels, by line")
    lower.set_xlabel("ms a step more or less, simulated")
    drawn.suptitle(answer.title, fontsize="medium")
    return drawn


def _more_or_less(axes: Axes, bars: Mapping[str, float], title: str) -> None:
    colours = ["tab:red" if seconds > 0 else "tab:green" for seconds in bars.values()]
    axes.barh(range(len(bars)), [1e3 * seconds for seconds in bars.values()], color=colours)
    axes.set_yticks(range(len(bars)), list(bars), parse_math=False)
    axes.invert_yaxis()
    axes.axvline(0.0, color="black", linewidth=0.8)
    axes.set_title(title, loc="left", fontsize=10)
