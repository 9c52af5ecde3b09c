"""Draw the network between nodes: trees from the top down, graphs with their cables."""

from collections.abc import Callable, Sequence
from math import prod

from matplotlib.axes import Axes
from matplotlib.patches import Circle

from sim.config.dataclass import dataclass
from sim.config.readable import human_seconds
from sim.hardware.cluster import grid as grids
from sim.hardware.cluster.cabled import CabledNetwork
from sim.hardware.cluster.network import ClusterNetwork
from sim.hardware.cluster.networks.dragonfly import Dragonfly
from sim.hardware.cluster.networks.grids import Torus
from sim.hardware.cluster.pods import PodNetwork
from sim.hardware.cluster.topology import Topology
from sim.interface.plots.node import (
    DEVICE,
    NIC_LINE,
    SWITCH,
    WIDTH,
    XY,
    box,
    circle,
    dots,
    finish,
    label,
    line,
    room,
    row,
)
from sim.interface.views.topology import KINDS, rate

_MOST_ON_CIRCLE, _MOST_GROUPS = 24, 12
_MOST_IN_DIMENSION = {1: 8, 2: 8, 3: 4}
_LOCAL, _GLOBAL = "#9e9e9e", "#0072b2"
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#8c6d31", "#7b6fd0")


def draw_network(axes: Axes, topology: Topology) -> None:
    """Draw the network on axes of width 10."""
    network = topology.network
    if network is None:
        return
    if isinstance(network, Torus):
        notes = _torus(axes, network)
    elif isinstance(network, Dragonfly):
        notes = _dragonfly(axes, network)
    elif isinstance(network, CabledNetwork):
        notes = _circle(axes, network)
    elif isinstance(network, PodNetwork) and network.has_pods:
        notes = _pods(axes, topology, network)
    elif network.rails:
        notes = _rails(axes, topology, network)
    else:
        notes = _tree(axes, topology, network)
    finish(axes, f"The network: {KINDS[network.kind]} {network.shape}", "\n".join(notes))


def _nics_note(network: ClusterNetwork) -> str:
    rates = f"{network.nics} x {rate(network.bandwidth)} each way per node"
    return f"{rates}, {human_seconds(network.latency)} from node to node"


def _tree(axes: Axes, topology: Topology, network: ClusterNetwork) -> list[str]:
    for node, (x, y) in row(axes, topology.nodes, 1.0, most=6).items():
        line(axes, (x, y), (x, 6.0), NIC_LINE, 2.0, of="nic")
        box(axes, (x, y), 1.2, 0.8, f"node {node:,}", DEVICE)
    name = "switch" if network.shape == "switch" else "fat tree of switches"
    box(axes, (WIDTH / 2, 6.2), WIDTH, 0.9, f"{name}, non-blocking", SWITCH, 11)
    label(axes, 3.6, f"{rate(network.nics * network.bandwidth)} each way")
    return [_nics_note(network)]


def _rails(axes: Axes, topology: Topology, network: ClusterNetwork) -> list[str]:
    tops = row(axes, network.nics, 4.6)
    for node, place in row(axes, topology.nodes, 0.8, most=4).items():
        for rail, top in tops.items():
            line(axes, place, top, _COLOURS[rail % len(_COLOURS)], of="nic")
        box(axes, place, 1.4, 0.8, f"node {node:,}", DEVICE)
    for rail, top in tops.items():
        line(axes, top, (top[0], 6.6), _COLOURS[rail % len(_COLOURS)], 2.0)
        box(axes, top, 0.9 * room(network.nics), 0.7, f"rail {rail}", SWITCH)
    box(axes, (WIDTH / 2, 6.6), WIDTH, 0.8, "spine, non-blocking", SWITCH, 11)
    return [_nics_note(network), "NIC j of every node is on rail j"]


def _pods(axes: Axes, topology: Topology, network: PodNetwork) -> list[str]:
    width = 0.86 * min(room(topology.pods, most=5), 2.5)
    for pod, (x, y) in row(axes, topology.pods, 3.4, most=5).items():
        line(axes, (x, y), (x, 6.4), NIC_LINE, 3.0, of="pod")
        box(axes, (x, y), width, 0.8, f"pod {pod}", SWITCH, 10)
        first = pod * network.nodes_per_pod
        last = min(first + network.nodes_per_pod, topology.nodes) - 1
        for side, node in ((-width / 4, first), (width / 4, last)):
            line(axes, (x + side, 0.9), (x + side, y), NIC_LINE, of="nic")
            box(axes, (x + side, 0.9), 0.45 * width, 0.8, f"node\n{node:,}", DEVICE)
        dots(axes, (x, 1.9))
    box(axes, (WIDTH / 2, 6.6), WIDTH, 0.9, "spine", SWITCH, 11)
    up = f"{rate(network.pod_bandwidth)} each way per pod (1:{network.oversubscription:g})"
    label(axes, 4.9, up)
    inside = f"pods of {network.nodes_per_pod} nodes, non-blocking inside"
    return [_nics_note(network), inside]


def _cable_notes(network: CabledNetwork, shown: int) -> list[str]:
    notes = [f"cables of {rate(network.bandwidth)} each way, {human_seconds(network.latency)}"]
    if shown < network.vertices:
        notes.append(f"{shown} of {network.vertices:,} nodes are drawn")
    return notes


def _vertex(axes: Axes, place: XY, name: str, size: float, colour: str = DEVICE) -> None:
    axes.add_patch(Circle(place, size, fc=colour, ec="#4d4d4d", zorder=3))
    axes.text(*place, name, ha="center", va="center", fontsize=8 if size > 0.2 else 6, zorder=4)


def _circle(axes: Axes, network: CabledNetwork) -> list[str]:
    shown = min(network.vertices, _MOST_ON_CIRCLE)
    places = circle(shown, (WIDTH / 2, 3.2), 3.3)
    for a in range(shown):
        for b in network.neighbours(a):
            if a < b < shown:
                thick = 1.6 if shown < 12 else 0.8
                line(axes, places[a], places[b], NIC_LINE, thick, of=f"edge {a}-{b}")
    for vertex, place in enumerate(places):
        _vertex(axes, place, str(vertex), 0.32, DEVICE if vertex < network.largest else SWITCH)
    return _cable_notes(network, shown)


@dataclass(frozen=True, slots=True)
class _TorusGrid:
    """The places of a grid's vertices on the page. The first dimension goes right, the second up,
    the third a little of both."""

    dims: tuple[int, ...]

    @property
    def directions(self) -> tuple[XY, ...]:
        deep = self.dims[2] if len(self.dims) > 2 else 1
        return ((1.0, 0.0), (0.0, 1.0), (0.9 / deep, 0.75 / deep))[: len(self.dims)]

    def offset(self, position: Sequence[float]) -> XY:
        moves = zip(position, self.directions, strict=True)
        xs, ys = zip(*((steps * x, steps * y) for steps, (x, y) in moves), strict=True)
        return sum(xs), sum(ys)

    @property
    def span(self) -> XY:
        return self.offset([size - 1 for size in self.dims])

    @property
    def cell(self) -> float:
        return min(8.6 / (self.span[0] + 1), 7.6 / (self.span[1] + 1), 2.2)

    def place(self, position: Sequence[float]) -> XY:
        x, y = self.offset(position)
        return (
            WIDTH / 2 + self.cell * (x - self.span[0] / 2),
            3.2 + self.cell * (y - self.span[1] / 2),
        )


def _torus(axes: Axes, network: Torus) -> list[str]:
    """Draw a corner of a torus; the third dimension goes right and up."""
    drawn = network.dims[:3]
    grid = _TorusGrid(tuple(min(size, _MOST_IN_DIMENSION[len(drawn)]) for size in drawn))
    positions = [grids.coordinates(v, grid.dims) for v in range(prod(grid.dims))]
    size = grid.cell * (0.13 if len(drawn) > 2 else 0.2)

    def vertex(position: Sequence[int]) -> int:
        full = (*position, *([0] * (len(network.dims) - len(drawn))))
        around = [place % size for place, size in zip(full, network.dims, strict=True)]
        return grids.vertex_at(around, network.dims)

    for position in positions:
        for dim in range(len(drawn)):
            _torus_cable(axes, grid, position, dim, vertex)
        _vertex(axes, grid.place(position), str(vertex(position)), size)
    notes = _cable_notes(network, len(positions))
    return [*notes, "dotted ends lead around to the opposite side"]


def _torus_cable(
    axes: Axes,
    grid: _TorusGrid,
    position: tuple[int, ...],
    dim: int,
    vertex: Callable[[Sequence[int]], int],
) -> None:
    """Draw the cable to the next vertex of a dimension, and at the border a dotted end of the cable
    around."""

    def at(by: float) -> tuple[float, ...]:
        return (*position[:dim], position[dim] + by, *position[dim + 1 :])

    def cable(towards: int, length: float, style: str = "-") -> None:
        following = [int(place) for place in at(towards)]
        ends = f"edge {vertex(position)}-{vertex(following)}"
        places = grid.place(position), grid.place(at(towards * length))
        line(axes, *places, _COLOURS[dim], style=style, of=ends)

    last = grid.dims[dim] - 1
    if position[dim] < last:
        cable(1, 1.0)
    if last > 1 and position[dim] in (0, last):
        cable(1 if position[dim] else -1, 0.45, ":")


def _dragonfly(axes: Axes, network: Dragonfly) -> list[str]:
    groups, routers = min(network.groups, _MOST_GROUPS), network.routers
    centres = circle(groups, (WIDTH / 2, 3.1), 3.1)
    radius = min(0.8, 2.4 * 3.1 / groups)
    places = [place for centre in centres for place in circle(routers, centre, radius)]
    size = min(0.22, 2.5 * radius / routers)
    width = min(0.8, 6.0 / routers)
    for a in range(len(places)):
        for b in network.neighbours(a):
            if a < b < len(places):
                local = a // routers == b // routers
                colour, thick = (_LOCAL, width) if local else (_GLOBAL, 0.8)
                line(axes, places[a], places[b], colour, thick, of=f"edge {a}-{b}")
    for vertex, place in enumerate(places):
        _vertex(axes, place, str(vertex) if size > 0.1 else "", size, SWITCH)
    local_rate, far = (rate(network.cable_bandwidth(0, b)) for b in (0, routers))
    cables = f"grey: within a group, {local_rate}; blue: between groups, {far} each way"
    notes = [f"{network.details[1]}, {_nics_note(network)}", cables]
    if groups < network.groups:
        notes.append(f"{groups} of {network.groups} groups are drawn")
    return notes
