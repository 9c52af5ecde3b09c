"""A topology as a picture: one node on the left, the network on the right.

Devices are blue, switches grey, NICs and their cables green, NVLinks orange (Okabe and Ito's
palette, which colour-blind readers can tell apart). What repeats is drawn a few times and counted.
"""

from matplotlib.figure import Figure

from sim.hardware.cluster.topology import Topology
from sim.plots.network import draw_network
from sim.plots.node import draw_node
from sim.results.topology import device_text, heading, rate

_LARGEST = 128  # devices of a node that are drawn; a pod of thousands is only told of


def figure(topology: Topology) -> Figure:
    """The node and the network of a topology, each where it has one."""
    panels = [draw_node] if 1 < topology.gpus_per_node <= _LARGEST else []
    if topology.network is not None:
        panels.append(draw_network)
    fig = Figure(figsize=(1 + 6.5 * max(len(panels), 1), 6.0), layout="constrained")
    fig.suptitle(f"{heading(topology)}\n{device_text(topology)}", fontsize=12)
    for column, panel in enumerate(panels):
        axes = fig.add_subplot(1, len(panels), column + 1)
        axes.set_axis_off()
        axes.set_aspect("equal")
        panel(axes, topology)
    if not panels and topology.node is not None:
        each = rate(topology.bandwidth(("port-up", 0)))
        fig.supxlabel(f"{topology.node.title}, {each} each way per device", fontsize=10)
    if topology.degraded:
        sick = ", ".join(f"{link.link} {link.factor:g} x slower" for link in topology.degraded)
        fig.supxlabel(f"degraded: {sick}", color="#c0392b", fontsize=10)
    return fig
