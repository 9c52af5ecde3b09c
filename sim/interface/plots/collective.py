"""Draw a collective by rounds: a column for each round, an arrow for each message."""

from dataclasses import replace
from functools import partial
from typing import Any

from matplotlib import colormaps

from sim.analysis.collectives.times import CollectiveTimes
from sim.collectives.schedule import CollectiveSchedule, Round
from sim.config.grouped import grouped
from sim.config.readable import human_bytes, human_seconds
from sim.interface.plots import topology
from sim.interface.plots.picture import PALETTE, Figure
from sim.interface.views.collective import title

_CHART = 3.4  # inches of a chart's height in a stacked picture


def figure(schedule: CollectiveSchedule, *, title: str = "") -> Figure:
    """Draw ranks from top to bottom, and rounds from left to right.

    An arrow runs from sender to receiver through its round, in the colour of the first chunk that
    it carries. It is solid if the receiver adds the chunk, dashed if the receiver keeps it. A
    number on an arrow is the number of its chunks, if that is above 1.
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
    """Return a function that gives each chunk its colour; chunks of an all-to-all have the colour
    of their source."""
    shades = colormaps["turbo"]
    parts = schedule.ranks if schedule.kind == "all_to_all" else schedule.chunks

    def colour(chunk: int) -> Any:
        part = chunk // schedule.ranks if schedule.kind == "all_to_all" else chunk
        red, green, blue, _ = shades(0.05 + 0.9 * part / max(parts - 1, 1))
        return 0.85 * red, 0.75 * green, 0.85 * blue  # yellow and cyan are too pale on white

    return colour


def _draw_round(axes: Any, number: int, round_: Round, colour: Any) -> None:
    carried = grouped(((send.src, send.dst, send.reduce), send.chunk) for send in round_)
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


def times(times: CollectiveTimes, *, stacked: bool = False) -> Figure:
    """Draw bandwidths on the left, and the busiest links at the largest size on the right. Below,
    draw the cluster with the load of each kind of link. If `stacked`, the drawings are below one
    another."""
    cluster = replace(times.topology, storage=None)  # no collective goes there
    drawn = topology.PANEL * len(topology.panels(cluster)) if stacked else 5.9
    charts = 2 * _CHART if stacked else 5.1
    size = (topology.STACKED if stacked else 13.0, charts + drawn)
    fig = Figure(figsize=size, layout="constrained")
    fig.suptitle(title(times), fontweight="bold")
    parts: Any = fig.subfigures(2, 1, height_ratios=(charts, drawn))
    above, below = parts
    if stacked:
        left, right = above.subplots(2, 1)
    else:
        left, right = above.subplots(1, 2, width_ratios=(2, 1))
        fig.narrow, fig.least = partial(_stacked, times), topology.READABLE * size[0]
    if len({row.size for row in times.rows}) > 1:
        _curves(left, times, ticks=4 if stacked else 7)
    else:
        _bars(left, times)
    _links(right, times)
    topology.draw(below, cluster, times.busy, stacked=stacked)
    return fig


def _stacked(answer: CollectiveTimes) -> Figure:
    return times(answer, stacked=True)


def _curves(axes: Any, times: CollectiveTimes, ticks: int) -> None:
    names = dict.fromkeys((row.algorithm, row.protocol) for row in times.rows)
    colours = {name: PALETTE[i] for i, name in enumerate(dict.fromkeys(a for a, _ in names))}
    styles = dict(zip(dict.fromkeys(p for _, p in names), ("-", "--", ":", "-."), strict=False))
    for algorithm, protocol in names:
        rows = [row for row in times.rows if (row.algorithm, row.protocol) == (algorithm, protocol)]
        points = [row.size for row in rows], [1e-9 * row.busbw for row in rows]
        colour, style = colours[algorithm], styles.get(protocol, "-")
        label = f"{algorithm} {protocol}"
        axes.plot(*points, style, color=colour, lw=1.3, label=label)
    best = [row for row in times.rows if row.chosen]
    axes.plot(
        [row.size for row in best], [1e-9 * row.busbw for row in best],
        color="0.2", lw=5.0, alpha=0.22, zorder=0, label="what the library chooses",
    )  # fmt: skip
    axes.axhline(1e-9 * times.bound, color="0.35", lw=1.0)
    axes.text(
        best[0].size, 1e-9 * times.bound, f"its links allow {1e-9 * times.bound:.4g} GB/s",
        va="bottom", fontsize=9,
    )  # fmt: skip
    axes.set(xscale="log", ylim=(0.0, 1.12e-9 * times.bound))
    sizes = [row.size for row in best]
    told = sizes[:: -(-len(sizes) // ticks)]
    axes.set_xticks(told, [human_bytes(size) for size in told], fontsize=9)
    axes.minorticks_off()
    axes.set(xlabel="size", ylabel="bus bandwidth (GB/s)")
    axes.legend(fontsize=8, frameon=False, loc="center left")
    axes.spines[["top", "right"]].set_visible(False)


def _bars(axes: Any, times: CollectiveTimes) -> None:
    """Draw a bar for each algorithm and protocol at a single size; the library's choice is
    darker."""
    names = [f"{row.algorithm} {row.protocol}" for row in times.rows]
    speeds = [1e-9 * row.busbw for row in times.rows]
    shades = [1.0 if row.chosen else 0.45 for row in times.rows]
    bars = axes.barh(range(len(names)), speeds, color=PALETTE[0], height=0.6)
    for bar, shade in zip(bars, shades, strict=True):
        bar.set_alpha(shade)
    for place, (row, speed) in enumerate(zip(times.rows, speeds, strict=True)):
        chosen = ", chosen" if row.chosen else ""
        axes.annotate(
            f"{speed:.4g}, {human_seconds(row.seconds)}{chosen}", (speed, place), (4, 0),
            textcoords="offset points", va="center", fontsize=9,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
        )  # fmt: skip
    axes.axvline(1e-9 * times.bound, color="0.35", lw=1.0)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set(xlabel="bus bandwidth (GB/s)", xlim=(0.0, 1.35e-9 * times.bound))
    title = f"{human_bytes(times.rows[0].size)}; its links allow {1e-9 * times.bound:.4g} GB/s"
    axes.set_title(title, fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)


def _links(axes: Any, times: CollectiveTimes) -> None:
    last = times.choice
    names, shares = list(last.links), [100.0 * share for share in last.links.values()]
    axes.barh(range(len(names)), shares, color=PALETTE[0], height=0.6)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set(xlim=(0, 105), xlabel="% of the time that it carries bytes")
    axes.set_title(f"busiest links at {human_bytes(last.size)}", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
