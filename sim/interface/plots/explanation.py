"""Draw the limits of a step, and the moves of a job to other clusters, batches or layouts."""

from textwrap import fill

from sim.analysis.explanation.explain import Explanation
from sim.analysis.explanation.moves import Moves
from sim.interface.plots.picture import PALETTE, Figure
from sim.results.formatting import several

_MOST = 10  # the most kernels that are drawn
_LINE = 24  # the most letters in a line of a name

_GIB = 2.0**30


def figure(answer: Explanation) -> Figure:
    """Draw how much shorter the step would be with faster resources, and how near each kernel is to
    its peak."""
    step = answer.limits.step_time
    fig = Figure(figsize=(12.0, 4.8), layout="constrained")
    gains, roofs = fig.subplots(1, 2)
    limits = answer.limits.limits
    names = [fill(limit.resource, _LINE) for limit in limits]
    free = [100.0 * (1.0 - limit.free / step) for limit in limits]
    halved = [100.0 * (1.0 - limit.halved / step) for limit in limits]
    gains.barh(names, free, color=PALETTE[5], label="at no cost")
    gains.barh(names, halved, color=PALETTE[0], label="twice as fast")
    gains.set_xlabel("how much shorter the step would be (%)")
    gains.legend(frameon=False, fontsize=9, loc="lower right")
    kernels = answer.kernels[:_MOST]
    colours = [PALETTE[0] if kernel.bound == "compute" else PALETTE[4] for kernel in kernels]
    bars = roofs.barh([fill(kernel.name, _LINE) for kernel in kernels],
                      [100.0 * kernel.of_peak for kernel in kernels], color=colours)  # fmt: skip
    shares = [f" {kernel.seconds / step:.1%}" for kernel in kernels]
    roofs.bar_label(bars, shares, fontsize=8)
    colours_of = "% of the peak of products (blue) or memory (orange);"
    roofs.set_xlabel(f"{colours_of}\nat each bar its share of the step")
    roofs.set_xlim(0.0, 120.0)
    gains.margins(x=0.35)
    for axes in (gains, roofs):
        axes.invert_yaxis()
        axes.spines[["right", "top"]].set_visible(False)
    title = f"{answer.result.scenario} on {several(answer.result.ranks, 'GPU')}"
    fig.suptitle(title, x=0.01, ha="left", fontweight="bold")
    return fig


def moves(answer: Moves) -> Figure:
    """Draw a point for each move, with a colour for each number of GPUs."""
    drawn = Figure(figsize=(7.0, 4.5), layout="constrained")
    axes = drawn.add_subplot()
    for gpus in sorted({move.gpus for move in answer.moves}):
        group = [move for move in answer.moves if move.gpus == gpus]
        sizes = [move.memory / _GIB for move in group]
        axes.scatter(sizes, [move.rate for move in group], label=f"{gpus:,} GPUs")
    if capacity := answer.result.get("capacity"):
        axes.axvline(capacity / _GIB, color="black", linewidth=0.8)
    axes.set_xlabel("memory of the fullest GPU, GiB")
    known = all(move.samples for move in answer.moves)
    axes.set_ylabel(f"{'samples' if known else 'steps of the job'} a second and GPU")
    axes.set_title(answer.title, fontsize="medium")
    axes.legend()
    return drawn
