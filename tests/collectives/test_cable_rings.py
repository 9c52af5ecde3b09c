"""Rings over a node's cables, as many as fit."""

import pytest

from sim.collectives.cable_rings import DGX1, rings


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
