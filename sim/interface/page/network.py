"""Show the load of the links on a drawing of the cluster and as a table."""

from collections.abc import Mapping, Sequence
from itertools import groupby

from matplotlib.figure import Figure

from sim.config.readable import human_bytes
from sim.engine.link_loads import LinkLoad
from sim.engine.routes import Regions
from sim.hardware.cluster.host import UNITS
from sim.hardware.cluster.topology import Topology
from sim.interface.document.nodes import Section, Sentence, Table
from sim.interface.page.page import Drawing, paged
from sim.interface.plots import topology as drawing
from sim.interface.plots.picture import rendered
from sim.interface.views.topology import rate
from sim.results.formatting import Cells, count, percent

KINDS = {
    "port": "ports of GPUs into their node's fabric",
    "nvlink": "NVLinks between GPUs",
    "nic": "NICs of nodes",
    "pod": "uplinks of pods",
    "edge": "cables between nodes",
    "pcie": "PCIe links of hosts",
    "memory": "memory of hosts",
    "nvme": "drives of hosts",
    "cores": "cores of hosts",
    "workers": "workers of loaders",
    "client": "nodes on the network of storage",
    "storage": "storage",
    "operations": "operations of storage",
}


def section(
    topology: Topology,
    busy: Mapping[str, float] | None,
    table: Table,
    text: str,
    regions: Regions | None = None,
) -> Section:
    """Return the table of the links' loads. If `busy` is given (the share of the time of the
    busiest link of each kind), a drawing of the cluster is above the table."""
    rows = table if table.body else None
    if busy is None:
        return paged("Network", rows, name="network")
    drawn = Drawing(element(drawing.figure(topology, busy, regions)))
    return paged("Network", Sentence(text), drawn, rows, name="network")


def element(figure: Figure) -> str:
    """Return a picture as an SVG element of a page."""
    figure.patch.set_visible(False)
    whole = rendered(figure, "svg").decode()
    return whole[whole.index("<svg") :]


def table(loads: Sequence[LinkLoad]) -> Table:
    """Return the loads of the busiest and the idlest used link, by kind of link and direction."""
    ordered = sorted(loads, key=_way)
    rows: list[Cells] = [("links", "way", "each carries", "at", "busy")]
    for _, group in groupby(ordered, key=_way):
        by_busy = sorted(group, key=lambda load: load.busy)
        low, high = by_busy[0], by_busy[-1]
        way = high.name.partition(" ")[0].partition("-")[2] or "both"
        rows.append(
            (
                KINDS.get(high.kind, high.kind),
                way,
                _range(_carried(low), _carried(high)),
                _capacity(high),
                _range(percent(low.busy), percent(high.busy)),
            )
        )
    return Table(caption="What links carry in the step", rows=rows, headed=True)


def _carried(load: LinkLoad) -> str:
    return f"{count(load.bytes)}" if load.kind in UNITS else human_bytes(load.bytes)


def _capacity(load: LinkLoad) -> str:
    unit = UNITS.get(load.kind)
    return f"{count(load.capacity)} {unit}" if unit else rate(load.capacity)


def _way(load: LinkLoad) -> str:
    return load.name.partition(" ")[0]


def _range(low: str, high: str) -> str:
    return high if low == high else f"{low} to {high}"
