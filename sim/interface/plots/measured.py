"""A measured step and its prediction, phase beside phase."""

from sim.analysis.calibration.training.comparison import JobComparison
from sim.interface.plots.picture import PALETTE, Figure
from sim.results.formatting import time_unit


def figure(comparison: JobComparison) -> Figure:
    """A pair of bars for each quantity that is a time."""
    rows = [row for row in comparison.quantities if row.unit == "s"]
    scale, unit = time_unit(max(row.measured for row in rows))
    fig = Figure(figsize=(10.0, 0.8 + 0.6 * len(rows)), layout="constrained")
    axes = fig.subplots()
    for number, side in enumerate(("measured", "predicted")):
        places = [place + 0.4 * number for place in range(len(rows))]
        axes.barh(places, [getattr(row, side) / scale for row in rows], 0.38, label=side,
                  color=PALETTE[number])  # fmt: skip
    axes.set_yticks([place + 0.2 for place in range(len(rows))], [row.name for row in rows])
    axes.invert_yaxis()
    axes.set(xlabel=f"time ({unit})", title=comparison.title)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return fig
