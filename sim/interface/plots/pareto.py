"""Draw a search: every evaluated layout, time against memory, with the Pareto front."""

from sim.analysis.search.answer import SearchResult
from sim.analysis.search.in_words import plan_text
from sim.interface.plots.picture import Figure


def figure(search: SearchResult) -> Figure:
    """Draw the layouts of a search, in the colour of their number of pipeline stages."""
    fig = Figure(figsize=(8, 5), layout="constrained")
    axes = fig.subplots()
    layouts = axes.scatter(
        [layout.step_time for layout in search.layouts],
        [layout.memory / 2**30 for layout in search.layouts],
        c=[layout.plan.pp for layout in search.layouts],
        s=10,
        cmap="viridis",
        vmin=1,
        label=f"{len(search.layouts)} layouts",
    )
    front = search.pareto
    times = [layout.step_time for layout in front]
    sizes = [layout.memory / 2**30 for layout in front]
    axes.step(times, sizes, where="post", color="tab:red", label="Pareto front")
    ends = {"A": front[0], "B": front[-1]} if len(front) > 1 else {"A": front[0]}
    for mark, layout in ends.items():
        axes.annotate(
            mark, (layout.step_time, layout.memory / 2**30), xytext=(5, 5),
            textcoords="offset points", fontweight="bold",
        )  # fmt: skip
    says = "\n".join(f"{mark}: {plan_text(layout.plan)}" for mark, layout in ends.items())
    fig.supxlabel(says, x=0.01, ha="left", fontsize=8)
    topology = search.space.topology
    limit = topology.device.usable_memory / 2**30
    axes.axhline(limit, color="grey", linestyle=":", label="memory of a GPU")
    stages = sorted({layout.plan.pp for layout in search.layouts})
    if len(stages) > 1:
        fig.colorbar(layouts, label="pipeline stages", ticks=stages)
    axes.set(xlabel="simulated step time (s)", ylabel="memory of the fullest GPU (GiB)")
    axes.set_title(f"{topology.gpus} GPUs, {search.space.global_batch} sequences a step")
    axes.legend(frameon=False, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    return fig
