"""Draw servers that answer prompts: their batches and caches over time, a decode step by part."""

from sim.interface.plots.picture import PALETTE, Figure
from sim.jobs.generation.answer import Generated
from sim.results.formatting import time_unit


def figure(answer: Generated) -> Figure:
    """Draw the sequences in all batches and the used share of the caches over time on the left. On
    the right, draw the parts of a decode step."""
    fig = Figure(figsize=(12.0, 3.6), layout="constrained")
    left, right = fig.subplots(1, 2, width_ratios=(2.2, 1.0))
    unit, name = time_unit(answer.time)
    times = [state.at / unit for state in answer.course]
    batches = [state.batch for state in answer.course]
    (lines,) = left.step(times, batches, where="post", color=PALETTE[0], label="sequences")
    left.set_ylim(bottom=0)
    left.set_xlabel(f"time ({name})")
    left.set_ylabel("sequences in all batches")
    shares = left.twinx()
    held = [100.0 * state.cache for state in answer.course]
    (others,) = shares.step(times, held, where="post", color=PALETTE[1], label="cache in use")
    shares.set_ylim(0, 105)
    shares.set_ylabel("cache in use (%)")
    left.legend(handles=[lines, others], loc="upper right", frameon=False)
    parts = list(answer.step.items())
    unit, name = time_unit(sum(answer.step.values()))
    right.barh([part for part, _ in parts], [seconds / unit for _, seconds in parts],
               color=PALETTE[0])  # fmt: skip
    right.invert_yaxis()
    right.set_xlabel(f"a decode step ({name})")
    return fig
