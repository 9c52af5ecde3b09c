"""Draw the inside of a node: devices, the links between them, and their NICs."""

from collections.abc import Mapping, Sequence
from math import cos, pi, sin

from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

from sim.config.readable import human_seconds
from sim.hardware.cluster.node_fabric import NodeFabric
from sim.hardware.cluster.topology import Topology
from sim.interface.views.topology import KINDS, rate

XY = tuple[float, float]

DEVICE, SWITCH, NIC, NVLINK = "#9ecae9", "#d9d9d9", "#a6dba0", "#e69f00"
EDGE, NIC_LINE, INK = "#4d4d4d", "#1b7837", "#222222"
WIDTH = 10.0
_MOST, _FEW = 16, 8  # boxes in a row that can be read; boxes that are drawn if there are more


def draw_node(axes: Axes, topology: Topology) -> None:
    """Draw a node on axes of width 10: devices in a row under their switch, or on a circle."""
    node = topology.node
    if node is None:
        return
    axes.set_title("A node", fontsize=11)
    if node.switched:
        places = row(axes, topology.gpus_per_node, 3.2)
        _switch(axes, topology, node, list(places.values()))
    else:
        places = dict(enumerate(circle(topology.gpus_per_node, (WIDTH / 2, 3.6), 2.4)))
        _nvlinks(axes, topology, node, list(places.values()))
    _nics(axes, topology, places)
    size = min(0.9 * room(topology.gpus_per_node), 1.0)
    for slot, place in places.items():
        used = slot < topology.gpus
        box(axes, place, size, 0.7, f"GPU\n{slot}", DEVICE if used else "white")
    axes.set_xlim(-0.3, WIDTH + 0.3)
    axes.set_ylim(_floor(topology, node), 7.3)


def finish(axes: Axes, title: str, note: str) -> None:
    """Write a title above and a note below a drawing on axes of width 10."""
    axes.set_title(title, fontsize=11)
    axes.text(WIDTH / 2, -1.5, note, ha="center", va="center", fontsize=10)
    axes.set_xlim(-0.3, WIDTH + 0.3)
    axes.set_ylim(-2.2, 7.3)


def label(axes: Axes, height: float, text: str) -> None:
    """Write a text over the cables, in the middle of the drawing."""
    place = {"ha": "center", "fontsize": 10, "backgroundcolor": "white", "zorder": 2}
    axes.text(WIDTH / 2, height, text, **place)  # type: ignore[arg-type]


def _floor(topology: Topology, node: NodeFabric) -> float:
    """Return the lower end of the picture, which is higher without NICs."""
    if topology.network is not None:
        return -2.2
    return 1.0 if node.switched else -0.6


def box(
    axes: Axes, centre: XY, width: float, height: float, text: str, colour: str, size: int = 8
) -> None:
    """Draw a labelled rectangle."""
    x, y = centre[0] - width / 2, centre[1] - height / 2
    style = "round,pad=0,rounding_size=0.08"
    patch = FancyBboxPatch((x, y), width, height, boxstyle=style, fc=colour, ec=EDGE, zorder=3)
    axes.add_patch(patch)
    axes.text(*centre, text, ha="center", va="center", fontsize=size, color=INK, zorder=4)


def line(
    axes: Axes, a: XY, b: XY, colour: str, width: float = 1.2, style: str = "-", *, of: str = ""
) -> None:
    """Draw a straight cable behind the boxes. `of` is the kind of link that the cable stands for,
    or the name of a single link."""
    axes.plot([a[0], b[0]], [a[1], b[1]], color=colour, lw=width, ls=style, zorder=1, gid=of)


def circle(count: int, centre: XY, radius: float) -> list[XY]:
    """Return points on a circle, clockwise from the top."""
    angles = (pi / 2 - 2 * pi * i / count for i in range(count))
    return [(centre[0] + radius * cos(t), centre[1] + radius * sin(t)) for t in angles]


def few(count: int, most: int) -> list[int | None]:
    """Return the first few of `count` numbers and the last; None stands for omitted numbers.

    >>> few(3, 4), few(9, 4)
    ([0, 1, 2], [0, 1, 2, None, 8])
    """
    if count <= most:
        return list(range(count))
    return [*range(most - 1), None, count - 1]


def dots(axes: Axes, place: XY) -> None:
    """Draw dots for omitted boxes."""
    axes.text(*place, "...", ha="center", va="center", fontsize=16)


def row(axes: Axes, count: int, height: float, most: int = 0) -> dict[int, XY]:
    """Return the places of `count` boxes side by side, of `most` at the most (0: as many as can be
    read). If there are more, draw dots for the omitted boxes."""
    columns = _columns(count, most)
    spots = [(WIDTH * (at + 0.5) / len(columns), height) for at in range(len(columns))]
    for number, spot in zip(columns, spots, strict=True):
        if number is None:
            dots(axes, spot)
    return {n: spot for n, spot in zip(columns, spots, strict=True) if n is not None}


def room(count: int, most: int = 0) -> float:
    """Return the room of each of `count` boxes in a `row`."""
    return WIDTH / len(_columns(count, most))


def _columns(count: int, most: int) -> list[int | None]:
    return few(count, most or (_MOST if count <= _MOST else _FEW))


def _switch(axes: Axes, topology: Topology, node: NodeFabric, places: Sequence[XY]) -> None:
    behind = node.network_through_ports
    for x, y in places:
        line(axes, (x, y), (x, 6.0), EDGE if behind else NVLINK, 2.0, of="port")
    box(axes, (WIDTH / 2, 6.2), WIDTH, 0.9, _fabric_name(node), SWITCH, 11)
    text = f"{rate(node.bandwidth)} each way per port, {human_seconds(node.latency)} end to end"
    label(axes, 4.6, text)


def _fabric_name(node: NodeFabric) -> str:
    return node.title + (" (adds up in the switch: SHARP)" if node.reduces else "")


def _nvlinks(axes: Axes, topology: Topology, node: NodeFabric, places: Sequence[XY]) -> None:
    slots = len(places)
    # Ports stand for NVLinks that reach any device.
    kind = str(next(iter(topology.links))[0]).partition("-")[0]
    for a, b, count in node.nvlinks(slots):
        line(axes, places[a], places[b], NVLINK, 1.6 * count, of=kind)
    most = max(count for _, _, count in node.nvlinks(slots))
    each = node.nvlink_bandwidth(slots)
    legend = f"cable: {rate(each)} each way, {human_seconds(node.latency)}"
    if most > 1:
        legend = (
            f"thin: 1 NVLink, {rate(each)} each way; thick: {most} NVLinks, {rate(most * each)}"
        )
    total = f"{rate(node.bandwidth)} each way per device in all"
    axes.text(WIDTH / 2, 6.85, f"{legend}\n{total}", ha="center", va="center", fontsize=10)


def _nics(axes: Axes, topology: Topology, places: Mapping[int, XY]) -> None:
    network, slots = topology.network, topology.gpus_per_node
    if network is None:
        low = 1.8 if topology.node is not None and topology.node.switched else -0.2
        axes.text(WIDTH / 2, low, "no network: a single node", ha="center", fontsize=10)
        return
    if not network.nics:
        text = "cabled to its neighbours directly, without NICs"
        axes.text(WIDTH / 2, -0.4, text, ha="center", fontsize=10)
        return
    users = [[s for s in range(slots) if topology.nic_of(s)[1] == j] for j in range(network.nics)]
    for j, place in row(axes, network.nics, 0.0).items():
        slots_of_nic = users[j]
        if topology.node is not None and topology.node.network_through_ports:
            line(axes, place, (place[0], 6.0), NIC_LINE, 1.2, ":", of="nic")
        elif topology.node is not None and topology.node.switched:
            for slot in places.keys() & set(slots_of_nic):
                line(axes, places[slot], place, NIC_LINE, of="nic")
        line(axes, place, (place[0], -1.0), NIC_LINE, 2.0, of="nic")
        name = f"NIC {j}" if len(slots_of_nic) == 1 else f"NIC {j}\n{_names(slots_of_nic, slots)}"
        box(axes, place, min(0.9 * room(network.nics), 1.6), 0.7, name, NIC)
    rates = f"{rate(network.bandwidth)} ({network.bandwidth * 8e-9:g} Gb/s) each way"
    text = f"to the network: {network.nics} x {KINDS[network.kind]}, {rates}"
    axes.text(WIDTH / 2, -1.5, text, ha="center", fontsize=10)


def _names(users: Sequence[int], slots: int) -> str:
    """Return a short name for the slots that share a NIC."""
    if len(users) == slots:
        return "all GPUs"
    if len(users) > 1 and users[-1] - users[0] == len(users) - 1:
        return f"GPU {users[0]}-{users[-1]}"
    return f"GPU {', '.join(map(str, users))}"
