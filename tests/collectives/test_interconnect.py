"""Shapes refuse what cannot be; a call's idle time is its slower level after its delay."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.collectives.cable_rings import DGX1, rings
from sim.collectives.interconnect import CallCost, CollectiveCall, Interconnect
from sim.collectives.schedule import GroupShape

DGX = Interconnect(
    generation="ampere",
    gpus_per_node=8,
    port_bandwidth=300e9,
    nics_per_node=4,
    nic_bandwidth=25e9,
    network="infiniband",
)


def test_ranks_fill_node_after_node() -> None:
    assert GroupShape.of(20, 8) == GroupShape(ranks=20, nodes=3, per_node=8)
    assert GroupShape.of(2, 8) == GroupShape(ranks=2, nodes=1, per_node=2)


@given(ranks=st.integers(1, 5000), per_node=st.integers(1, 16))
def test_filled_nodes_hold_all_ranks_and_no_fewer_would(ranks: int, per_node: int) -> None:
    shape = GroupShape.of(ranks, per_node)
    assert (shape.nodes - 1) * shape.per_node < shape.ranks <= shape.nodes * shape.per_node


def test_more_nodes_than_ranks_are_refused() -> None:
    with pytest.raises(ValueError, match="2 ranks cannot be on 3 nodes"):
        GroupShape(ranks=2, nodes=3)


def test_members_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="2 nodes of 4 do not hold 9"):
        GroupShape(ranks=9, nodes=2, per_node=4)


@pytest.mark.parametrize(("members", "nics"), [(1, 1), (2, 1), (3, 2), (8, 4), (16, 4)])
def test_members_reach_the_network_through_their_own_nics(members: int, nics: int) -> None:
    assert DGX.nic_share(members) == nics * 25e9


def test_idle_time_is_the_slower_level_after_the_delay() -> None:
    call = CollectiveCall("all_reduce", 1.0, GroupShape.of(16, 8), DGX)
    assert call.duration(CallCost(latency=1.0, port=600e9, nic=100e9)) == 1.0 + 2.0
    assert call.duration(CallCost(latency=1.0, port=300e9, nic=400e9)) == 1.0 + 4.0


def test_traffic_inside_a_node_needs_no_network() -> None:
    alone = Interconnect(generation="hopper", gpus_per_node=8, port_bandwidth=450e9)
    call = CollectiveCall("all_reduce", 1.0, GroupShape.of(8, 8), alone)
    assert call.duration(CallCost(latency=0.5, port=450e9)) == 1.5


def test_every_gpu_of_a_dgx1_has_six_cables() -> None:
    assert all(sum(row) == 6 for row in DGX1)
    assert all(DGX1[a][b] == DGX1[b][a] for a in range(8) for b in range(8))


@pytest.mark.parametrize(
    ("members", "measured"),
    [(2, 22.55), (3, 45.14), (4, 85.36), (6, 45.74), (7, 87.01), (8, 134.51)],
)
def test_rings_of_a_dgx1_explain_its_measured_bandwidths(members: int, measured: float) -> None:
    """Bus bandwidth (GB/s) of 1 GB all-reduces, vtrain_node_allreduce.csv: 22.5 a ring."""
    assert rings(DGX1, members) * 22.5 == pytest.approx(measured, rel=0.06)


def test_a_cycle_of_single_cables_carries_one_ring_each_way() -> None:
    square = ((0, 1, 0, 1), (1, 0, 1, 0), (0, 1, 0, 1), (1, 0, 1, 0))
    assert rings(square, 4) == 2


def test_a_full_mesh_of_four_has_one_cycle_and_cables_to_spare() -> None:
    """K4 has three cables a GPU; a cycle takes two, and one is left over."""
    full = tuple(tuple(int(a != b) for b in range(4)) for a in range(4))
    assert rings(full, 4) == 2
