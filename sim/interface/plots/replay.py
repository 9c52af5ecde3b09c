"""Draw replayed traces: the seconds of each rank by reason, as they were and changed."""

from sim.interface.plots.picture import PALETTE, Figure
from sim.jobs.traces.account import REASONS
from sim.jobs.traces.replay import Replay
from sim.results.formatting import time_unit

_GREY = "#b8b8b8"


def figure(replay: Replay) -> Figure:
    """Draw a bar for each rank, with the seconds of its step by reason."""
    played = [("as it was", replay.replayed), ("changed", replay.changed)]
    rows = [
        (f"rank {rank}, {name}", seconds)
        for rank in replay.replayed.ranks
        for name, step in played
        if step is not None and (seconds := step.ranks.get(rank))
    ]
    scale, unit = time_unit(replay.replayed.step_time)
    fig = Figure(figsize=(10.0, 1.6 + 0.45 * len(rows)), layout="constrained")
    axes = fig.add_subplot()
    left = [0.0] * len(rows)
    colours = dict(zip(REASONS, (*PALETTE[:4], _GREY), strict=True))
    for reason, colour in colours.items():
        widths = [seconds[reason] / scale for _, seconds in rows]
        axes.barh(range(len(rows)), widths, left=left, height=0.62, color=colour, label=reason)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    axes.set_yticks(range(len(rows)), [name for name, _ in rows])
    axes.invert_yaxis()
    axes.set(xlabel=f"a step ({unit})", xlim=(0.0, 1.02 * max(left)))
    axes.spines[["top", "right"]].set_visible(False)
    handles, labels = axes.get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside upper center", ncols=len(REASONS), frameon=False)
    return fig
