"""A collective as a picture of its rounds: a column a round, an arrow for every message."""

from typing import Any

from matplotlib import colormaps

from sim.collectives.schedule import CollectiveSchedule, Round
from sim.interface.plots.picture import Figure


def figure(schedule: CollectiveSchedule, *, title: str = "") -> Figure:
    """Ranks from top to bottom, rounds from left to right.

    An arrow runs from sender to receiver through its round, in the colour of the (first) chunk
    that it carries; it is solid where the receiver adds, dashed where it keeps. The number on an
    arrow is how many chunks it carries, where that is more than one.
    """
    n, rounds = schedule.ranks, schedule.rounds
    fig = Figure(figsize=(2.0 + 0.9 * len(rounds), 1.4 + 0.45 * n), layout="constrained")
    axes: Any = fig.add_subplot()
    for number, round_ in enumerate(rounds):
        _draw_round(axes, number, round_, _colours(schedule))
    for border in range(len(rounds) + 1):
        axes.plot([border] * n, range(n), "o", color="0.25", markersize=4, zorder=3)
    _label(axes, schedule, title)
    return fig


def _colours(schedule: CollectiveSchedule) -> Any:
    """The colour of each chunk; a chunk of an all-to-all has that of its source."""
    shades = colormaps["turbo"]
    parts = schedule.ranks if schedule.kind == "all_to_all" else schedule.chunks

    def colour(chunk: int) -> Any:
        part = chunk // schedule.ranks if schedule.kind == "all_to_all" else chunk
        red, green, blue, _ = shades(0.05 + 0.9 * part / max(parts - 1, 1))
        return 0.85 * red, 0.75 * green, 0.85 * blue  # yellow and cyan are too pale on white

    return colour


def _draw_round(axes: Any, number: int, round_: Round, colour: Any) -> None:
    carried: dict[tuple[int, int, bool], list[int]] = {}
    for send in round_:
        carried.setdefault((send.src, send.dst, send.reduce), []).append(send.chunk)
    for (src, dst, adds), chunks in carried.items():
        style = {"arrowstyle": "-|>", "linestyle": "-" if adds else (0, (4, 2)), "shrinkB": 3}
        shade = colour(min(chunks))
        axes.annotate(
            "", (number + 1, dst), (number, src), arrowprops={**style, "color": shade, "lw": 1.3}
        )
        if len(chunks) > 1:
            place = (number + 0.2, src + 0.2 * (dst - src))
            box = {"boxstyle": "circle,pad=0.15", "color": "white"}
            axes.text(
                *place, len(chunks), color=shade, fontsize=7, ha="center", va="center", bbox=box
            )


def _label(axes: Any, schedule: CollectiveSchedule, title: str) -> None:
    n, rounds = schedule.ranks, len(schedule.rounds)
    axes.set_yticks(range(n), [f"rank {rank}" for rank in range(n)])
    axes.set_xticks([r + 0.5 for r in range(rounds)], [str(r + 1) for r in range(rounds)])
    axes.set_xlabel(
        "round\nsolid: the receiver adds, dashed: it keeps; colour: the chunk", fontsize=9
    )
    axes.set_xlim(-0.15, rounds + 0.15)
    axes.set_ylim(n - 0.5, -0.5)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    words = f"{schedule.kind.replace('_', '-')} of {n} ranks, {schedule.chunks} chunks"
    axes.set_title(f"{title}: {words}" if title else words, fontsize=11)
