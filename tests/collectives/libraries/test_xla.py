"""XLA on TPUs: all cables of a torus carry a collective, hosts carry it between slices."""

import pytest

from sim.collectives.interconnect import CallCost, CollectiveCall
from sim.collectives.libraries import backend
from sim.collectives.libraries.xla import Xla
from sim.collectives.schedule import CollectiveKind, GroupShape
from sim.engine.machine import Machine
from sim.hardware.cluster.topology import load

IDEAL = Xla(launch=0.0, hop=0.0, fraction=1.0, slice_hop=0.0, slice_fraction=1.0)
GB = 1e9


def machine(name: str, chips: int, each: int | None = None) -> Machine:
    return Machine(load(name).with_gpus(chips, each), IDEAL)


def seconds(name: str, kind: CollectiveKind, shape: GroupShape, chips: int) -> float:
    return _seconds(machine(name, chips, chips // shape.nodes), kind, shape)


def _seconds(own: Machine, kind: CollectiveKind, shape: GroupShape) -> float:
    call = CollectiveCall(kind, GB, shape, own.interconnect)
    return call.duration(IDEAL.call_cost(call))


@pytest.mark.parametrize(("chips", "cables"), [(256, 4), (64, 4), (8, 3), (4, 2)])
def test_an_all_reduce_uses_every_cable_of_its_grid_both_ways(chips: int, cables: int) -> None:
    """T = 2 (n-1)/n S / (cables x 45 GB/s), How to Scale Your Model, "TPU networking"; a dimension
    of two chips has one cable."""
    taken = seconds("tpu-v5e", "all_reduce", GroupShape.of(chips, chips), chips)
    assert taken == pytest.approx(2 * (chips - 1) / chips * GB / (cables * 45e9))


def test_a_group_along_one_dimension_has_that_dimension_s_cables() -> None:
    own = machine("tpu-v5e", 256)
    row, whole = GroupShape.of(16, 256), GroupShape.of(256, 256)
    both = [_seconds(own, "all_gather", shape) for shape in (row, whole)]
    assert both[0] == pytest.approx(15 / 16 * GB / 90e9)
    assert both[1] == pytest.approx(255 / 256 * GB / 180e9)


def test_steps_are_those_of_the_dimensions_one_after_the_other() -> None:
    own = backend.load("xla")
    assert isinstance(own, Xla)
    hardware = machine("tpu-v5e", 256).interconnect
    call = CollectiveCall("all_gather", 1.0, GroupShape.of(256, 256), hardware)
    cost = own.call_cost(call)
    assert cost.latency == pytest.approx(own.launch + 30 * own.hop)


def test_an_all_to_all_is_bound_by_the_cables_that_it_passes() -> None:
    """S k/4 bytes through each dimension of k chips: T = S sqrt(n) / (4 W), W of one dimension."""
    taken = seconds("tpu-v5e", "all_to_all", GroupShape.of(256, 256), 256)
    assert taken == pytest.approx(2 * 16 / 4 * GB / 180e9)


def test_slices_exchange_over_the_hosts_of_their_members() -> None:
    """One member a slice, as data parallelism across slices has it: one host's adapter each."""
    taken = seconds("tpu-v5e", "all_reduce", GroupShape(ranks=4, nodes=4, per_node=1), 1024)
    assert taken == pytest.approx(2 * 3 / 4 * GB / 12.5e9)


def test_a_call_of_one_rank_costs_nothing() -> None:
    hardware = machine("tpu-v4", 4).interconnect
    cost = IDEAL.call_cost(CollectiveCall("all_reduce", GB, GroupShape.of(1, 1), hardware))
    assert (cost.latency, cost.port, cost.nic) == (0.0, 0.0, 0.0)
    assert isinstance(cost, CallCost)


def test_cores_of_a_chip_share_its_cables() -> None:
    pod = load("tpu-v2-pod").with_gpus(128)
    assert pod.node is not None
    assert pod.node.torus(128) == ((8, 2), (8, 2))
    assert 2 * pod.bandwidth(("port-up", 0)) == pytest.approx(4 * 496e9 / 8)
