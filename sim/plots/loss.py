"""The loss on the way, where workers share updates: against simulated time and against samples."""

from collections.abc import Iterable, Sequence

from matplotlib.figure import Figure

from sim.results.outcome import Outcome


def figure(outcomes: Iterable[Outcome], *, names: Sequence[str] = (), title: str = "") -> Figure:
    """A line for each outcome; `names` stand in for their methods."""
    fig = Figure(figsize=(12.0, 4.2), layout="constrained")
    by_time, by_samples = fig.subplots(1, 2, sharey=True)
    for number, outcome in enumerate(outcomes):
        if outcome.curve:
            seconds, samples, losses = zip(*outcome.curve, strict=True)
            name = names[number] if names else outcome.method
            by_time.semilogy(seconds, losses, linewidth=1.3)
            by_samples.semilogy(samples, losses, linewidth=1.3, label=name)
    by_time.set(xlabel="simulated time (s)", ylabel="loss")
    by_samples.set(xlabel="samples")
    by_samples.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    for axes in (by_time, by_samples):
        axes.spines[["right", "top"]].set_visible(False)
    fig.legend(loc="outside right center", frameon=False)
    fig.suptitle(title, x=0.01, ha="left", fontweight="bold")
    return fig
