"""Regions of a cluster, joined by slow links, as a picture."""

from math import ceil

from matplotlib.axes import Axes

from sim.config.units import human_seconds
from sim.engine.routes import Regions
from sim.hardware.cluster.topology import Topology
from sim.interface.plots.node import DEVICE, NIC_LINE, SWITCH, box, dots, few, line
from sim.interface.views.topology import rate

_WIDTH, _MOST = 10.0, 6


def draw_regions(axes: Axes, topology: Topology, regions: Regions) -> None:
    """Each region with its nodes, and its link to all others, on axes of width 10."""
    count = ceil(topology.nodes / regions.nodes)
    shown = few(count, _MOST)
    room = _WIDTH / len(shown)
    for place, number in enumerate(shown):
        x = room * (place + 0.5)
        if number is None:
            dots(axes, (x, 1.5))
            continue
        line(axes, (x, 1.5), (x, 6.0), NIC_LINE, 2.0, of="region")
        nodes = min(regions.nodes, topology.nodes - number * regions.nodes)
        text = f"region {number}\n{nodes} node" + "s" * (nodes > 1)
        box(axes, (x, 1.5), min(0.86 * room, 2.2), 1.2, text, DEVICE, 9)
    box(axes, (_WIDTH / 2, 6.2), _WIDTH, 0.9, "links between regions", SWITCH, 11)
    said = f"{rate(regions.bandwidth)} each way per region"
    axes.text(_WIDTH / 2, 3.8, said, ha="center", fontsize=10, backgroundcolor="white", zorder=2)
    axes.set_title("The regions", fontsize=11)
    note = f"{human_seconds(regions.latency)} from region to region"
    axes.text(_WIDTH / 2, -1.5, note, ha="center", va="center", fontsize=10)
    axes.set_xlim(-0.3, _WIDTH + 0.3)
    axes.set_ylim(-2.2, 7.3)
