"""The mesh is a bijection between ranks and coordinates, and its groups partition the ranks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.config.errors import InputError
from sim.parallel.mesh import Mesh

sizes = st.lists(st.integers(1, 5), min_size=1, max_size=4)
meshes = sizes.map(lambda s: Mesh(axes=dict(zip(("tp", "cp", "dp", "pp"), s, strict=False))))


def test_megatron_order_keeps_tensor_peers_adjacent_and_stages_far():
    # Megatron-LM parallel_state.py, docstring: 16 GPUs, tp 2, pp 4, dp 2 (written 1-based there).
    mesh = Mesh.ordered("tp-dp-pp", {"tp": 2, "pp": 4, "dp": 2})
    assert list(mesh.groups("tp")) == [(i, i + 1) for i in range(0, 16, 2)]
    assert list(mesh.groups("pp")) == [
        (0, 4, 8, 12),
        (1, 5, 9, 13),
        (2, 6, 10, 14),
        (3, 7, 11, 15),
    ]
    assert sorted(mesh.groups("dp")) == [
        (0, 2),
        (1, 3),
        (4, 6),
        (5, 7),
        (8, 10),
        (9, 11),
        (12, 14),
        (13, 15),
    ]


def test_another_order_puts_stages_next_to_tensor_peers():
    mesh = Mesh.ordered("tp-pp-dp", {"tp": 2, "pp": 4, "dp": 2})
    assert mesh.group(0, "pp") == (0, 2, 4, 6)
    assert mesh.group(0, "dp") == (0, 8)


@given(meshes)
def test_rank_and_coordinates_are_inverse(mesh):
    seen = [tuple(mesh.coordinates(rank).values()) for rank in range(mesh.size)]
    assert len(set(seen)) == mesh.size
    assert all(mesh.rank(mesh.coordinates(rank)) == rank for rank in range(mesh.size))


@given(meshes)
def test_one_coordinate_agrees_with_all_coordinates(mesh):
    for rank in range(mesh.size):
        assert {axis: mesh.coordinate(rank, axis) for axis in mesh.axes} == mesh.coordinates(rank)


@given(meshes, st.data())
def test_groups_partition_the_ranks(mesh, data):
    axes = data.draw(st.lists(st.sampled_from(list(mesh.axes)), unique=True))
    groups = list(mesh.groups(*axes))
    assert sorted(rank for group in groups for rank in group) == list(range(mesh.size))
    assert all(mesh.group(rank, *axes) == group for group in groups for rank in group)
    assert {len(group) for group in groups} == {mesh.degree(*axes)}


@given(meshes, st.data())
def test_group_members_differ_in_its_axes_only(mesh, data):
    axis = data.draw(st.sampled_from(list(mesh.axes)))
    rank = data.draw(st.integers(0, mesh.size - 1))
    here = mesh.coordinates(rank)
    assert [mesh.coordinates(other) for other in mesh.line(rank, axis)] == [
        here | {axis: i} for i in range(mesh.axes[axis])
    ]


def test_a_huge_mesh_answers_about_one_rank_without_visiting_the_others():
    mesh = Mesh.ordered("tp-cp-dp-pp", {"tp": 8, "cp": 16, "dp": 2**40, "pp": 16})
    assert mesh.coordinates(mesh.size - 1) == {"tp": 7, "cp": 15, "dp": 2**40 - 1, "pp": 15}
    assert len(mesh.line(0, "dp")) == 2**40
    assert mesh.neighbour(0, "pp", -1) == 15 * 8 * 16 * 2**40


@pytest.mark.parametrize("size", [0, -1, 2.0, True])
def test_a_size_that_is_no_positive_whole_number_is_refused(size):
    with pytest.raises(InputError, match="dp"):
        Mesh(axes={"tp": 2, "dp": size})


def test_an_order_that_forgets_an_axis_is_refused():
    with pytest.raises(InputError, match="lacks cp = 2; write tp-dp-cp"):
        Mesh.ordered("tp-dp", {"tp": 2, "cp": 2, "dp": 2})


@pytest.mark.parametrize("order", ["tp-dp-tp", "", "tp--dp"])
def test_an_unclear_order_is_refused(order):
    with pytest.raises(InputError, match="name each axis once"):
        Mesh.ordered(order, {})


def test_outside_the_mesh_there_is_nothing():
    mesh = Mesh(axes={"tp": 2, "dp": 2})
    with pytest.raises(IndexError):
        mesh.coordinates(4)
    with pytest.raises(IndexError):
        mesh.rank({"dp": 2})
