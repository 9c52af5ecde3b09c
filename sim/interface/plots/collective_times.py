"""A collective's bus bandwidth by algorithm, against its size where there are several, with what
its links allow; and who loads which."""

from typing import Any

from sim.analysis.collectives.times import CollectiveTimes
from sim.config.units import human_bytes, human_seconds
from sim.interface.plots import topology
from sim.interface.plots.picture import PALETTE, Figure
from sim.interface.views.collective import title


def figure(times: CollectiveTimes) -> Figure:
    """Bandwidths on the left, the busiest links of the largest size on the right; below, how busy
    links of each kind are on the drawing of the cluster."""
    fig = Figure(figsize=(13.0, 11.0), layout="constrained")
    fig.suptitle(title(times), fontweight="bold")
    parts: Any = fig.subfigures(2, 1, height_ratios=(1.0, 1.15))
    above, below = parts
    left, right = above.subplots(1, 2, width_ratios=(2, 1))
    if len({row.size for row in times.rows}) > 1:
        _curves(left, times)
    else:
        _bars(left, times)
    _links(right, times)
    topology.draw(below, times.topology, times.busy)
    return fig


def _curves(axes: Any, times: CollectiveTimes) -> None:
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
    ticks = sizes[:: max(1, len(sizes) // 7)]
    axes.set_xticks(ticks, [human_bytes(size) for size in ticks], fontsize=9)
    axes.minorticks_off()
    axes.set(xlabel="size", ylabel="bus bandwidth (GB/s)")
    axes.legend(fontsize=8, frameon=False, loc="center left")
    axes.spines[["top", "right"]].set_visible(False)


def _bars(axes: Any, times: CollectiveTimes) -> None:
    """A single size: each algorithm and protocol, the library's choice darker."""
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
