"""A budget as a picture: the chance that the training is done, over days."""

import numpy as np

from sim.analysis.reliability.budget import Budget
from sim.config.units import DAY
from sim.interface.plots.picture import PALETTE, Figure
from sim.results.formatting import large, several


def figure(budget: Budget) -> Figure:
    """The chance of being done, with the deadline where there is one."""
    fig = Figure(figsize=(5.6, 3.6), layout="constrained")
    axes = fig.subplots()
    days = np.asarray(budget.times) / DAY
    axes.step(days, np.linspace(0.0, 1.0, len(days)), where="post", color=PALETTE[0])
    if budget.deadline is not None:
        axes.axvline(budget.deadline, color="grey", linestyle=":", label="deadline")
        axes.legend(frameon=False)
    axes.set(xlabel="days", ylabel="chance that it is done", ylim=(0.0, 1.0))
    axes.spines[["right", "top"]].set_visible(False)
    title = f"{large(budget.tokens)} tokens on {several(budget.gpus, 'GPU')}"
    fig.suptitle(title, x=0.01, ha="left", fontweight="bold")
    return fig
