"""PCIe is one resource: copies to and from the host, messages to other nodes, and collectives of
PCIe nodes share its links, and together they take as long as all their bytes do."""

from dataclasses import replace

import pytest

from sim.collectives.libraries import backend
from sim.engine.link_loads import link_loads
from sim.engine.machine import Machine
from sim.engine.play import play
from sim.hardware.cluster.host import Host
from sim.hardware.cluster.topology import Topology, load
from sim.program.causes import DATA, LOADING
from sim.program.operations import Collective, Communicate, Copy, HostLink, PassOps
from sim.program.program import Program, Stage
from sim.program.schedule import Action, PassVariant, Schedule

SIZE = 1e9
NARROW = Host(bandwidth=1e9, efficiency=1.0, memory=1e12, memory_bandwidth=1e12, latency=0.0)


def copy(name: str, *path: HostLink) -> Communicate:
    call = Copy(kind="stream", bytes=SIZE, name=name, cause=LOADING, path=path)
    return Communicate(name=name, calls=(call,), stream=name)


def gathered() -> Communicate:
    call = Collective(kind="all_gather", axes=("dp",), bytes=SIZE, name="gather", cause=DATA)
    return Communicate(name="gather", calls=(call,), stream="gather")


def played(cluster: Topology, *operations: Communicate) -> tuple[float, dict[str, float]]:
    """Seconds until all is done, and the seconds that each kind of link needs for its bytes."""
    program = Program(
        mesh={"dp": cluster.gpus, "pp": 1},
        schedule=Schedule(orders=((Action("F", 0),),), pieces=((0,),)),
        stages=(Stage(ops_by_variant={PassVariant("F", 0, first=True): PassOps(operations)}),),
    )
    record = play(program, Machine(cluster, backend.load("nccl")), engine="clock")
    busy = {load.name.partition(" ")[0]: load.busy * record.end for load in link_loads(record)}
    return record.end, busy


def switched(gpus: int, **host: bool) -> Topology:
    return replace(load("dgx-h100-ndr").with_gpus(gpus), host=replace(NARROW, **host))


def test_two_copies_one_way_share_a_link_and_copies_both_ways_do_not() -> None:
    cluster = switched(8)
    one, _ = played(cluster, copy("a", "pcie-down"))
    two, _ = played(cluster, copy("a", "pcie-down"), copy("b", "pcie-down"))
    across, _ = played(cluster, copy("a", "pcie-down"), copy("b", "pcie-up"))
    assert (one, two, across) == pytest.approx((1.0, 2.0, 1.0), rel=1e-9)


def test_messages_to_other_nodes_share_a_device_s_link_with_its_copies() -> None:
    """Whoever comes first or fills its share, the link is never idle: the last ends when all
    bytes have passed."""
    cluster = switched(16, gpudirect=True)
    both, busy = played(cluster, gathered(), copy("samples", "pcie-down"))
    assert busy["pcie-down"] > 1.0
    assert both >= busy["pcie-down"] * (1.0 - 1e-9)
    assert both == pytest.approx(busy["pcie-down"], rel=1e-3)  # and the gather's latency
    alone, own = played(switched(16), gathered(), copy("off", "memory"))
    assert "pcie-down" not in own
    apart, _ = played(switched(16), gathered(), copy("samples", "pcie-down"))
    assert apart == pytest.approx(max(1.0, alone), rel=1e-6)


def test_a_nic_behind_a_narrower_device_s_link_is_no_faster_than_that_link() -> None:
    """Copies or none: more network changes nothing, in the messages and in the protocol that the
    library chooses for them."""
    narrow = switched(16, gpudirect=True)
    alone, own = played(narrow, gathered())
    assert alone == pytest.approx(own["pcie-down"], rel=1e-3)
    assert own["pcie-down"] == pytest.approx(own["pcie-up"], rel=1e-9)
    endless, _ = played(narrow.changed(network=replace(narrow.network, bandwidth=1e15)), gathered())
    assert endless == pytest.approx(alone, rel=1e-9)
    wide = replace(narrow, host=replace(NARROW, bandwidth=1e12, gpudirect=True))
    free, passed = played(wide, gathered())
    assert "pcie-down" not in passed  # a link that cannot limit them is not looked at
    assert free < alone


def test_collectives_of_a_pcie_node_share_its_devices_links_with_their_copies() -> None:
    cluster = load("example-pcie").with_gpus(4)
    wide = replace(NARROW, bandwidth=1e15)
    cluster = replace(cluster, host=wide)
    alone, _ = played(cluster, gathered())
    both, busy = played(cluster, gathered(), copy("samples", "pcie-down"))
    assert both > alone
    assert both == pytest.approx(busy["port-down"], rel=1e-2)


def test_what_comes_from_storage_over_a_nic_passes_pcie_on_its_way_to_memory() -> None:
    cluster = switched(8)
    path: tuple[HostLink, ...] = ("nic-down", "pcie-up", "memory")
    both, busy = played(cluster, copy("samples", *path), copy("activations", "pcie-up", "memory"))
    assert both == pytest.approx(2.0, rel=1e-9)
    assert busy["nic-down"] < busy["pcie-up"]
