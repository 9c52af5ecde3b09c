"""A new network shape, or a new fabric of a node, is one new file."""

from pathlib import Path

import pytest

import sim
from sim.config.errors import InputError
from sim.hardware.cluster import fabrics, networks
from sim.hardware.cluster.topology import load
from sim.interface.document.terminal import text
from sim.interface.views.topology import view

STAR = '''
from dataclasses import dataclass
from typing import Literal
from sim.hardware.cluster.cabled import CabledNetwork

@dataclass(frozen=True, kw_only=True)
class Star(CabledNetwork):
    """`leaves` nodes around node 0."""

    shape: Literal["star"] = "star"
    leaves: int

    @property
    def vertices(self):
        return self.leaves + 1

    def neighbours(self, vertex):
        return (0,) if vertex else tuple(range(1, self.vertices))

    def path(self, source, target):
        return tuple(dict.fromkeys((source, 0, target)))
'''
BUS = '''
from dataclasses import dataclass
from typing import ClassVar, Literal
from sim.hardware.cluster.node_fabric import NodeFabric

@dataclass(frozen=True, kw_only=True)
class Bus(NodeFabric):
    """All devices share `bandwidth`."""

    fabric: Literal["bus"] = "bus"
    title: ClassVar[str] = "bus"
    switched: ClassVar[bool] = True
    wires: int

    def port_bandwidth(self, slots, used):
        return self.bandwidth / used
'''
CLUSTER = """
name = "mine"
device = "a100-80gb-sxm"
gpus = 8
gpus_per_node = 2
[node]
fabric = "bus"
bandwidth = "100 GB/s"
latency = "1 us"
wires = 64
[network]
shape = "star"
kind = "roce"
bandwidth = "100 Gb/s"
latency = "2 us"
leaves = 3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a cluster of a shape and a fabric that are not packaged."""
    for package, name, source in ((networks, "star", STAR), (fabrics, "bus", BUS)):
        (tmp_path / package.__name__).mkdir()
        (tmp_path / package.__name__ / f"{name}.py").write_text(source)
        path = [*package.__path__, str(tmp_path / package.__name__)]
        monkeypatch.setattr(package, "__path__", path)
    (tmp_path / "topologies").mkdir()
    (tmp_path / "topologies" / "mine.toml").write_text(CLUSTER)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_its_links_and_routes_are_those_that_the_file_states(folder: Path) -> None:
    cluster = load("mine")
    assert cluster.route(2, 7) == (("edge", 1, 0), ("edge", 0, 3))
    assert cluster.capacity(("port-up", 0)) == 50e9
    assert cluster.parse_link("edge 0-2") == (("edge", 0, 2), ("edge", 2, 0))
    assert "bus, 100 GB/s per device" in text(view(cluster))
    assert "star, RoCE, cables of 12.5 GB/s each way" in text(view(cluster))


def test_a_step_runs_on_it(folder: Path) -> None:
    changes = {"topology": "mine", "gpus": 8, "plan.tp": 2, "plan.dp": 4}
    scenario = sim.load("gpt2-one-gpu", changes)
    slow = sim.load("gpt2-one-gpu", {**changes, "network.bandwidth": "1 Gb/s"})
    assert sim.run(slow).step_time > 2 * sim.run(scenario).step_time


def test_its_keys_belong_to_it_alone(folder: Path) -> None:
    with pytest.raises(InputError, match=r"'dims' for shape = .star. \(it belongs to torus\)"):
        load("mine", {"network.dims": [4]})
    with pytest.raises(InputError, match=r"'leaves' for shape = .torus. \(it belongs to star\)"):
        load("example-torus-2d", {"network.leaves": 4})
    with pytest.raises(InputError, match="is unknown; did you mean 'star'"):
        load("mine", {"network.shape": "stars"})
