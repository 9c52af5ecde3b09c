"""Draw an RL loop of generation and training: the trainer's time, and the answers in progress."""

from sim.interface.plots.picture import Figure
from sim.jobs.reinforcement.answer import ReinforcementAnswer
from sim.results.formatting import time_unit


def figure(answer: ReinforcementAnswer) -> Figure:
    """Draw the trainer's time by cause above, and the number of answers on the servers below."""
    fig = Figure(figsize=(12.0, 4.2), layout="constrained")
    above, below = fig.subplots(2, 1, sharex=True, height_ratios=(1, 2))
    unit, name = time_unit(answer.timeline.end)
    named: set[str] = set()
    for span in answer.timeline.spans:
        label = None if span.cause in named else str(span.cause)
        named.add(span.cause)
        above.barh(0, span.duration / unit, left=span.start / unit, color=span.cause.colour,
                   label=label)  # fmt: skip
    above.set_yticks([0], ["trainer"])
    if named:
        above.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(named), frameon=False)
    moments = [moment / unit for moment, _ in answer.running]
    below.step(moments, [count for _, count in answer.running], where="post", color="#e69f00")
    below.fill_between(
        moments, [count for _, count in answer.running], step="post", color="#e69f00", alpha=0.3
    )
    below.set_ylabel("answers on servers")
    below.set_ylim(bottom=0)
    below.set_xlabel(f"time ({name})")
    return fig
