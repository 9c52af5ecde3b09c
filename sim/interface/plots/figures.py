"""Jobs with several measured figures: predicted over measured."""

from sim.analysis.validation.figures import FigureValidation
from sim.interface.plots.picture import PALETTE, Figure


def figure(answer: FigureValidation) -> Figure:
    """A point for each figure of a row, a colour for each figure."""
    fig = Figure(figsize=(8.4, 5.0), layout="constrained")
    axes = fig.add_subplot()
    for number, name in enumerate(dict.fromkeys(run.figure for run in answer.runs)):
        runs = [run for run in answer.runs if run.figure == name and run.predicted is not None]
        axes.scatter(
            [run.measured for run in runs],
            [(run.predicted or 0.0) / run.measured for run in runs],
            s=18.0, linewidths=0, color=PALETTE[number % len(PALETTE)], label=name,
        )  # fmt: skip
    axes.axhline(1.0, color="0.3", linewidth=1)
    axes.axhspan(0.8, 1.2, color="0.9", zorder=0)
    axes.set(xscale="log", xlabel="measured (s)", ylabel="predicted / measured; grey: within 20 %")
    axes.legend(fontsize=8)
    return fig
