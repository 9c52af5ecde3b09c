"""Draw storage: the nodes below, the stores above, and the links between them."""

from matplotlib.axes import Axes

from sim.hardware.cluster.storage import Storage
from sim.hardware.cluster.topology import Topology
from sim.interface.plots.node import (
    DEVICE,
    NIC_LINE,
    SWITCH,
    WIDTH,
    XY,
    box,
    finish,
    label,
    line,
    room,
    row,
)
from sim.interface.views.topology import rate, storage_text

_MOST = 4
_STORE, _CABLE = "#fdd0a2", "#a63603"


def draw_storage(axes: Axes, topology: Topology) -> None:
    """Draw the storage of a topology, which must have one, on axes of width 10."""
    storage, nodes = topology.storage, topology.nodes
    assert storage is not None, "it has storage"
    if storage.remote:
        way = "client" if storage.bandwidth else "nic"
        for place in _boxes(axes, nodes, 0.5, "node {}", DEVICE).values():
            line(axes, place, (place[0], 3.0), NIC_LINE, 2.0, of=way)
        stores = storage.place_of(nodes - 1) + 1
        for place in _boxes(axes, stores, 6.2, _called(storage), _STORE).values():
            line(axes, place, (place[0], 3.0), _CABLE, 2.5, of="storage")
        separate = f"a network of its own, {rate(storage.bandwidth)} each way per node"
        text = separate if storage.bandwidth else "the NICs' network"
        box(axes, (WIDTH / 2, 3.0), WIDTH, 0.9, text, SWITCH, 11)
        said = f"each store {rate(storage.read)} read, {rate(storage.write)} written"
        label(axes, 4.5, said)
    else:
        host = topology.host
        said = f"{rate(host.read)} read, {rate(host.write)} written" if host else ""
        axes.text(WIDTH / 2, 5.8, said, ha="center", fontsize=10)
        for x, y in _boxes(axes, nodes, 2.0, "node {}", DEVICE).values():
            line(axes, (x, y), (x, 4.6), _CABLE, 2.5, of="nvme")
            box(axes, (x, 4.8), 1.5, 0.8, "drives", _STORE, 9)
    finish(axes, "The storage", "")
    note = storage_text(storage).replace(" for ", "\nfor ")
    axes.text(WIDTH / 2, -1.2, note, ha="center", va="center", fontsize=10, wrap=True)


def _called(storage: Storage) -> str:
    name = "file\nsystem" if storage.kind == "parallel" else "object\nstore"
    return f"{name} {{}}" if storage.nodes else name


def _boxes(axes: Axes, count: int, y: float, name: str, colour: str) -> dict[int, XY]:
    """Draw boxes side by side, with dots for omitted boxes. Return the places of the boxes."""
    places, width = row(axes, count, y, _MOST), min(0.86 * room(count, _MOST), 2.2)
    for number, place in places.items():
        box(axes, place, width, 0.9, name.format(f"{number:,}"), colour, 9)
    return places
