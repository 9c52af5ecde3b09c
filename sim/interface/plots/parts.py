"""Kernels or collectives as a picture: predicted over measured, by the time that was measured."""

from sim.analysis.validation.parts import PartValidation
from sim.interface.plots.picture import PALETTE, Figure


def figure(answer: PartValidation) -> Figure:
    """A point for each part, a colour for each kind of it."""
    fig = Figure(figsize=(8.4, 5.0), layout="constrained")
    axes = fig.add_subplot()
    kinds = dict.fromkeys(run.group.partition(",")[0] for run in answer.runs)
    for number, kind in enumerate(kinds):
        runs = [run for run in answer.runs if run.group.partition(",")[0] == kind]
        axes.scatter(
            [run.measured * 1e6 for run in runs],
            [run.predicted / run.measured for run in runs],
            s=8.0, alpha=0.6, linewidths=0, color=PALETTE[number % len(PALETTE)], label=kind,
        )  # fmt: skip
    axes.axhline(1.0, color="0.3", linewidth=1)
    axes.axhspan(0.8, 1.2, color="0.9", zorder=0)
    axes.set(xscale="log", xlabel="measured (us)", ylabel="predicted / measured; grey: within 20 %")
    axes.set_title(
        f"{answer.inputs.cluster or answer.inputs.device}: {len(answer.runs):,} measured"
    )
    axes.legend(fontsize=8)
    return fig
