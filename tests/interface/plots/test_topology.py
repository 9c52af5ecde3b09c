"""The picture of a topology shows its parts with their rates, and is whole or not there."""

import struct
import xml.etree.ElementTree as ET
from functools import cache
from pathlib import Path

import pytest

from sim.config import catalog
from sim.config.errors import InputError
from sim.hardware.cluster.slow_links import slowed
from sim.hardware.cluster.topology import Topology, load
from sim.interface.document.terminal import text
from sim.interface.plots.picture import Figure, rendered, save
from sim.interface.plots.topology import figure
from sim.interface.views.topology import view

NAMES = catalog.names("topologies")


@cache
def packaged(name: str) -> Figure:
    return figure(load(name))


def texts(topology: Topology) -> list[str]:
    return words(figure(topology))


def words(fig: Figure) -> list[str]:
    """Everything written in a picture."""
    written = [text for axes in fig.axes for text in axes.texts]
    titles = [axes.title.get_text() for axes in fig.axes]
    headings = [fig.get_suptitle(), fig.get_supxlabel()]
    return [*headings, *titles, *(text.get_text() for text in written)]


@pytest.mark.few(12)
@pytest.mark.parametrize("name", NAMES)
def test_every_topology_can_be_drawn_with_units_on_its_rates(name: str) -> None:
    written = " ".join(words(packaged(name)))
    assert name in written
    assert "GB/s" in written
    assert "each way" in written


@pytest.mark.few(12)
@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_written_outside_its_panel(name: str) -> None:
    for axes in packaged(name).axes:
        (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
        for one in axes.texts:
            x, y = one.get_position()
            assert left < x < right, one
            assert low < y < high, one


def test_a_png_has_its_size_in_its_head(tmp_path: Path) -> None:
    path = tmp_path / "cluster.png"
    save(figure(load("dgx-a100-hdr")), path)
    head = path.read_bytes()[:24]
    assert head.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", head[16:24])
    assert (width, height) == (2100, 900)


def test_an_svg_keeps_its_words(tmp_path: Path) -> None:
    path = tmp_path / "cluster.svg"
    save(figure(load("dgx-2-v100")), path)
    words = " ".join(ET.fromstring(path.read_text(encoding="utf-8")).itertext())
    assert "150 GB/s each way per port" in words
    assert "node 95" in words


def test_the_same_topology_gives_the_same_bytes() -> None:
    cluster = load("example-full-mesh")
    for kind in ("svg", "png"):
        assert rendered(figure(cluster), kind) == rendered(figure(cluster), kind)


def test_all_gpus_and_nics_of_a_node_are_drawn() -> None:
    written = texts(load("dgx-2-v100"))
    assert sum(text.startswith("GPU\n") for text in written) == 16
    assert [text for text in written if text.startswith("NIC")][:2] == [
        "NIC 0\nGPU 0-1",
        "NIC 1\nGPU 2-3",
    ]


def test_of_a_large_node_the_first_and_last_are_drawn() -> None:
    """A row of 72 names could not be read; 16 can (the test above)."""
    cluster = load("gb200-nvl72")
    written = texts(cluster)
    drawn = [*range(7), 71]
    assert [text for text in written if text.startswith("GPU\n")] == [f"GPU\n{n}" for n in drawn]
    for kind in ("NIC", "rail"):
        named = [text for text in written if text.startswith(f"{kind} ")]
        assert named == [f"{kind} {n}" for n in drawn]
    assert written.count("...") == 4  # GPUs, NICs, rails, nodes


def test_a_large_cluster_is_abbreviated_and_counted() -> None:
    written = texts(load("dgx-h100-ndr", {"gpus": 65536}))
    assert "65,536 x H100 80GB SXM, 8,192 nodes of 8" in written[0]
    nodes = dict.fromkeys(text for text in written if text.startswith("node "))  # two panels
    assert list(nodes) == ["node 0", "node 1", "node 2", "node 8,191"]


def test_a_large_torus_shows_its_corner_and_says_so() -> None:
    cluster = load("example-torus-2d", {"network.dims": [100, 50], "gpus": 5000})
    written = texts(cluster)
    assert any("64 of 5,000 nodes are drawn" in text for text in written)
    assert "707" in written  # the corner's last vertex: (7, 7) is 7 + 100 x 7


def test_oversubscription_is_labelled_with_what_a_pod_can_send() -> None:
    written = texts(load("h100-grand-teton-roce"))
    assert "21.9 TB/s each way per pod (1:7)" in written


@pytest.mark.parametrize(
    ("own", "cables"), [("50 GB/s", {"storage", "client"}), (None, {"storage", "nic"})]
)
def test_stores_are_drawn_with_the_way_that_leads_to_them(
    own: str | None, cables: set[str]
) -> None:
    """40 nodes have two stores, of 32 nodes each."""
    store = {"kind": "parallel", "read": "40 GB/s", "write": "20 GB/s", "nodes": 32}
    cluster = load("h100-grand-teton-roce", {"gpus": 320, "storage": store})
    if own:
        cluster = load("dgx-h100-ndr", {"gpus": 320, "storage.bandwidth": own})
    drawn, written = figure(cluster).axes[-1], texts(cluster)
    assert {str(line.get_gid()) for line in drawn.lines} == cables
    assert [text for text in written if text.startswith("file")] == [
        "file\nsystem 0",
        "file\nsystem 1",
    ]
    assert "each store 40.0 GB/s read, 20.0 GB/s written" in written


def test_a_degraded_link_is_named() -> None:
    sick = slowed(load("b200-node"), "gpu3.port", 2.0)
    assert "degraded: gpu3.port 2 x slower" in texts(sick)
    assert "degraded  gpu3.port 2 times slower" in text(view(sick))


def test_unused_gpus_of_a_partial_node_are_left_white() -> None:
    patches = figure(load("b200-node").with_gpus(3)).axes[0].patches
    white = [patch for patch in patches if patch.get_facecolor() == (1.0, 1.0, 1.0, 1.0)]
    assert len(white) == 5
    assert "one node of 8, partly used" in text(view(load("b200-node").with_gpus(3)))


@pytest.mark.parametrize("name", ["cluster.gif", "cluster", "png"])
def test_other_endings_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is neither \.png, \.svg nor \.pdf"):
        save(figure(load("b200-node")), tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        save(figure(load("b200-node")), tmp_path / "none" / "cluster.png")


def test_cables_have_the_colour_of_how_busy_they_are() -> None:
    drawn = figure(load("h100-grand-teton-roce"), {"port": 0.4, "nic": 0.1, "pod": 0.4})
    colours: dict[str, set[object]] = {}
    for line in (line for axes in drawn.axes for line in axes.lines if line.get_gid()):
        colours.setdefault(str(line.get_gid()), set()).add(line.get_color())
    assert colours.keys() == {"port", "nic", "pod"}
    assert all(len(of_kind) == 1 for of_kind in colours.values())
    assert colours["port"] == colours["pod"] != colours["nic"]
    ends = [tick.get_text() for tick in drawn.axes[-1].get_xticklabels()]
    assert ends[-1] == "50 %"  # the next scale above what is busiest


def test_cables_whose_load_nobody_counts_are_not_in_the_colours_of_loads() -> None:
    """Rails of a non-blocking network have no limit above their switches."""
    drawn = figure(load("dgx-h100-ndr"), {"port": 0.4, "nic": 0.1})
    uncounted = [line for axes in drawn.axes for line in axes.lines if not line.get_gid()]
    assert len(uncounted) == 8
    assert {(line.get_color(), line.get_linestyle()) for line in uncounted} == {("#c9cdd2", ":")}


@pytest.mark.parametrize(
    ("name", "kind"),
    [("example-torus-3d", "edge"), ("example-dragonfly", "edge"), ("example-full-mesh", "edge"),
     ("dgx-1-v100", "port"), ("example-nvlink-ring", "nvlink"), ("example-fat-tree", "nic")],
)  # fmt: skip
def test_every_drawing_knows_which_kind_of_link_a_cable_is(name: str, kind: str) -> None:
    topology = load(name)
    drawn = figure(topology)
    cables = [str(line.get_gid()) for axes in drawn.axes for line in axes.lines]
    assert kind in {cable.partition(" ")[0] for cable in cables}
    for cable in cables:
        if " " in cable:  # a single one, by the name that it has elsewhere
            assert topology.parse_link(cable)
    assert kind in {str(link[0]).partition("-")[0] for link in topology.links}
