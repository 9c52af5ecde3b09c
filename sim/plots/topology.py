"""A topology as a picture: one node on the left, the network on the right.

Devices are blue, switches grey, NICs and their cables green, NVLinks orange (Okabe and Ito's
palette, which colour-blind readers can tell apart). What repeats is drawn a few times and counted.
"""

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.config.errors import InputError
from sim.config.files import atomic_write
from sim.hardware.cluster.topology import Topology
from sim.plots.network import draw_network
from sim.plots.node import draw_node
from sim.results.topology import describe, device_text, heading

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["describe", "draw", "figure", "render"]

_DPI = 150
_FORMATS = ("png", "svg")


def draw(topology: Topology, path: Path | str) -> None:
    """Draw the topology into a PNG or SVG file, whole or not at all.

    Raises `InputError` where the file cannot be written or its ending is another.
    """
    kind = Path(path).suffix.removeprefix(".").lower()
    if kind not in _FORMATS:
        raise InputError(str(path), "is neither .png nor .svg", "end the name in .png or .svg")
    with atomic_write(path) as part:
        part.write_bytes(render(topology, kind))


def render(topology: Topology, kind: str = "png") -> bytes:
    """The picture as the bytes of a "png" or "svg" file, the same for the same topology."""
    import matplotlib as mpl

    buffer = BytesIO()
    metadata: dict[str, Any] = {"Date": None} if kind == "svg" else {"Software": None}
    with mpl.rc_context({"svg.hashsalt": "sim", "svg.fonttype": "none"}):
        figure(topology).savefig(buffer, format=kind, dpi=_DPI, metadata=metadata)
    return buffer.getvalue()


def figure(topology: Topology) -> "Figure":
    """The picture as a matplotlib figure, to change or to show in a notebook."""
    from matplotlib.figure import Figure

    panels = [draw_node] if topology.gpus_per_node > 1 else []
    if topology.network is not None:
        panels.append(draw_network)
    fig = Figure(figsize=(1 + 6.5 * max(len(panels), 1), 6.0), layout="constrained")
    fig.suptitle(f"{heading(topology)}\n{device_text(topology)}", fontsize=12)
    for column, panel in enumerate(panels):
        axes = fig.add_subplot(1, len(panels), column + 1)
        axes.set_axis_off()
        axes.set_aspect("equal")
        panel(axes, topology)
    if topology.degraded:
        sick = ", ".join(f"{one.link} {one.factor:g} x slower" for one in topology.degraded)
        fig.supxlabel(f"degraded: {sick}", color="#c0392b", fontsize=10)
    return fig
