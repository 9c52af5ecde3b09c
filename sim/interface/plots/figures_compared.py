"""Jobs side by side as bars: what the best has least of, and the seconds of each by part."""

from sim.analysis.comparison.figures import FigureComparison
from sim.interface.plots.picture import PALETTE, Figure
from sim.results.formatting import time_unit


def figure(compared: FigureComparison) -> Figure:
    """A row a job: left its cost, right its parts one after the other."""
    rows, part = range(len(compared.cases)), compared.parts[0]
    fig = Figure(figsize=(12.0, 1.9 + 0.4 * len(rows)), layout="constrained")
    left, right = fig.subplots(1, 2, sharey=True)
    unit, name = time_unit(max(compared.costs))
    left.barh(rows, [cost / unit for cost in compared.costs], color=PALETTE[0])
    left.set_title(f"{compared.cases[0].result.get('cost')[0]} ({name})", loc="left", fontsize=10)
    unit, name = time_unit(max(sum(seconds.values()) for seconds in part.seconds))
    ends = [0.0] * len(rows)
    for number, key in enumerate(dict.fromkeys(k for own in part.seconds for k in own)):
        widths = [seconds.get(key, 0.0) / unit for seconds in part.seconds]
        right.barh(rows, widths, left=ends, color=PALETTE[number % len(PALETTE)], label=key)
        ends = [end + width for end, width in zip(ends, widths, strict=True)]
    right.set_title(f"{part.title} ({name})", loc="left", fontsize=10)
    right.legend(loc="upper left", bbox_to_anchor=(0.0, -0.5 / len(rows)), ncols=3, frameon=False,
                 fontsize=8)  # fmt: skip
    left.set_yticks(rows, compared.names, parse_math=False)
    left.set_ylim(len(rows) - 0.5, -0.5)
    return fig
