"""Draw a topology: a node on the left, then the network and the storage.

Devices are blue, switches grey, NICs and their cables green, NVLinks orange (Okabe and Ito's
palette, which colour-blind readers can tell apart). Repeated parts are drawn a few times and
counted. If the load of links is given, cables have the colour of their load. Cables without a load
in the simulation are then dotted.
"""

from collections.abc import Callable, Mapping
from functools import partial
from math import ceil

from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import SubFigure
from matplotlib.ticker import PercentFormatter

from sim.config.readable import human_seconds
from sim.engine.routes import Regions
from sim.hardware.cluster.link_names import link_name, links_named
from sim.hardware.cluster.topology import Topology
from sim.interface.plots.network import draw_network
from sim.interface.plots.node import (
    DEVICE,
    NIC_LINE,
    SWITCH,
    WIDTH,
    box,
    draw_node,
    finish,
    label,
    line,
    room,
    row,
)
from sim.interface.plots.picture import Figure
from sim.interface.plots.storage import draw_storage
from sim.interface.views.topology import device_text, heading, rate

_LARGEST = 128  # devices; a larger node (a pod of thousands) is described in words
_SHADES = LinearSegmentedColormap.from_list("busy", ["#9aa0a6", "#e69f00", "#d73027", "#7f0000"])
_UNCOUNTED = "#c9cdd2"
_SCALES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)

_MOST = 6  # regions that are drawn
STACKED, PANEL = 7.0, 4.2
"""Inches of a stacked picture's width, and of the height of each of its drawings."""
READABLE = 0.7
"""The share of a picture's width below which its text has no room."""


def figure(
    topology: Topology,
    busy: Mapping[str, float] | None = None,
    regions: Regions | None = None,
    *,
    stacked: bool = False,
) -> Figure:
    """Draw the node, the network and the storage of a topology, as far as it has them. If
    `stacked`, they are drawn below one another.

    `busy` is the share of time for which links are in use, by kind of link (`sim.engine.record`) or
    by the name of a single cable. `regions` join clusters by slow links."""
    count = max(len(panels(topology, regions)), 1)
    size = (STACKED, 1 + PANEL * count) if stacked else (1 + 6.5 * count, 6.0)
    fig = Figure(figsize=size, layout="constrained")
    draw(fig, topology, busy, regions, stacked=stacked)
    if count > 1 and not stacked:
        fig.narrow = partial(figure, topology, busy, regions, stacked=True)
        fig.least = READABLE * fig.get_figwidth()
    return fig


def draw(
    fig: Figure | SubFigure,
    topology: Topology,
    busy: Mapping[str, float] | None = None,
    regions: Regions | None = None,
    *,
    stacked: bool = False,
) -> None:
    """Draw a topology, as `figure` does, on an existing figure or a part of a figure."""
    parts = panels(topology, regions)
    fig.suptitle(f"{heading(topology)}\n{device_text(topology)}", fontsize=12)
    for place, panel in enumerate(parts):
        grid = (len(parts), 1) if stacked else (1, len(parts))
        axes = fig.add_subplot(*grid, place + 1)
        axes.set_axis_off()
        axes.set_aspect("equal")
        panel(axes, topology)
    if not parts and topology.node is not None:
        each = rate(topology.bandwidth(("port-up", 0)))
        fig.supxlabel(f"{topology.node.title}, {each} each way per device", fontsize=10)
    if topology.degraded:
        sick = ", ".join(f"{link.link} {link.factor:.4g} x slower" for link in topology.degraded)
        fig.supxlabel(f"degraded: {sick}", color="#c0392b", fontsize=10)
    if busy:
        _shade(fig, busy)


def panels(
    topology: Topology, regions: Regions | None = None
) -> list[Callable[[Axes, Topology], None]]:
    """The drawings of a topology, each on axes of its own."""
    found: dict[Callable[[Axes, Topology], None], bool] = {
        draw_node: 1 < topology.gpus_per_node <= _LARGEST,
        draw_network: topology.network is not None,
        draw_storage: topology.storage is not None,
    }
    if regions is not None:
        found[partial(draw_regions, regions=regions)] = True
    return [panel for panel, there in found.items() if there]


def _shade(fig: Figure | SubFigure, busy: Mapping[str, float]) -> None:
    """Colour cables by their load, and draw the scale."""
    most = max(busy.values())
    top = next((top for top in _SCALES if most <= top), most)
    scale = Normalize(0.0, top)
    cables = [cable for axes in fig.axes for cable in axes.lines]
    drawn = [cable for cable in cables if cable.get_gid()]
    for cable in cables:
        if not cable.get_gid():  # no link of the simulation
            cable.set(color=_UNCOUNTED, linestyle=":")
    for cable in drawn:
        share = _share(str(cable.get_gid()), busy)
        cable.set(color=_SHADES(scale(share)), linewidth=cable.get_linewidth() + 1.0)
    if drawn:
        colours = ScalarMappable(scale, _SHADES)
        fig.colorbar(
            colours,
            ax=fig.axes,
            label="share of the time in use, of the busiest link of each kind",
            location="bottom",
            shrink=0.4,
            aspect=40,
            pad=0.01,
            ticks=[top * share / 5 for share in range(6)],
            format=PercentFormatter(1.0, decimals=0 if top >= 0.05 else 1, symbol=" %"),
        )


def _share(drawn: str, busy: Mapping[str, float]) -> float:
    """Return the load of a cable: of its busier direction if `busy` has single cables, else of its
    kind of link."""
    kind, single, _ = drawn.partition(" ")
    if not single or not any(name.startswith(f"{kind} ") for name in busy):
        return busy.get(kind, 0.0)
    return max((busy.get(link_name(link), 0.0) for link in links_named(drawn)), default=0.0)


def draw_regions(axes: Axes, topology: Topology, regions: Regions) -> None:
    """Draw each region with its nodes and its link to all other regions, on axes of width 10."""
    count = ceil(topology.nodes / regions.nodes)
    width = min(0.86 * room(count, _MOST), 2.2)
    for number, (x, y) in row(axes, count, 1.5, _MOST).items():
        line(axes, (x, y), (x, 6.0), NIC_LINE, 2.0, of="region")
        nodes = min(regions.nodes, topology.nodes - number * regions.nodes)
        text = f"region {number}\n{nodes} node" + "s" * (nodes > 1)
        box(axes, (x, y), width, 1.2, text, DEVICE, 9)
    box(axes, (WIDTH / 2, 6.2), WIDTH, 0.9, "links between regions", SWITCH, 11)
    label(axes, 3.8, f"{rate(regions.bandwidth)} each way per region")
    finish(axes, "The regions", f"{human_seconds(regions.latency)} from region to region")
