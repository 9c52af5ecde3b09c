"""The mesh is a bijection between ranks and coordinates, the first axis varying fastest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.config.errors import InputError
from sim.parallel.mesh import Mesh
from sim.parallel.state import state

sizes = st.lists(st.integers(1, 5), min_size=1, max_size=4)
meshes = sizes.map(lambda s: Mesh(axes=dict(zip(("tp", "cp", "dp", "pp"), s, strict=False))))


def test_megatron_order_keeps_tensor_peers_adjacent_and_stages_far() -> None:
    # Megatron-LM parallel_state.py, docstring: 16 GPUs, tp 2, pp 4, dp 2 (written 1-based there).
    mesh = Mesh(axes={"tp": 2, "dp": 2, "pp": 4})
    stages = [[r for r in range(16) if mesh.coordinate(r, "pp") == s] for s in range(4)]
    assert stages == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]]
    assert [mesh.coordinate(rank, "tp") for rank in range(4)] == [0, 1, 0, 1]


def test_another_order_puts_stages_next_to_tensor_peers() -> None:
    mesh = Mesh(axes={"tp": 2, "pp": 4, "dp": 2})
    assert [mesh.coordinate(rank, "pp") for rank in (0, 2, 4, 6, 8)] == [0, 1, 2, 3, 0]


@given(meshes)
def test_no_two_ranks_have_the_same_coordinates(mesh: Mesh) -> None:
    seen = [tuple(mesh.coordinates(rank).values()) for rank in range(mesh.size)]
    assert len(set(seen)) == mesh.size


@given(meshes)
def test_coordinates_times_strides_are_the_rank(mesh: Mesh) -> None:
    for rank in range(mesh.size):
        at = mesh.coordinates(rank)
        assert sum(index * mesh.stride(axis) for axis, index in at.items()) == rank
        assert {axis: mesh.coordinate(rank, axis) for axis in mesh.axes} == at


def test_a_huge_mesh_answers_about_one_rank_without_visiting_the_others() -> None:
    mesh = Mesh(axes={"tp": 8, "cp": 16, "dp": 2**40, "pp": 16})
    assert mesh.coordinates(mesh.size - 1) == {"tp": 7, "cp": 15, "dp": 2**40 - 1, "pp": 15}


@pytest.mark.parametrize("size", [0, -1, 2.0, True])
def test_a_size_that_is_no_positive_whole_number_is_refused(size: object) -> None:
    with pytest.raises(InputError, match="dp"):
        Mesh(axes={"tp": 2, "dp": size})  # type: ignore[dict-item]


def test_outside_the_mesh_there_is_nothing() -> None:
    with pytest.raises(IndexError):
        Mesh(axes={"tp": 2, "dp": 2}).coordinates(4)


@pytest.mark.parametrize(
    ("options", "total"),
    [
        # Megatron-LM's fp16: weights, gradients, fp32 weights, two moments.
        ({"precision": "fp16", "gradients": "buffer"}, 2 + 2 + 12),
        # Its bf16 accumulates in fp32 (Korthikanti et al. 2022; Megatron-LM's theoretical memory).
        ({"precision": "bf16", "gradients": "fused"}, 2 + 4 + 12),
        # ZeRO-1 of the same over four: 6 + 12 / dp.
        ({"precision": "bf16", "gradients": "fused-buffer"}, 2 + 2 + 12),
        ({"precision": "bf16", "gradients": "fused", "zero": 1}, 6 + 3),
        ({"precision": "bf16", "gradients": "fused", "zero": 2}, 2 + 1 + 3),
        ({"precision": "bf16", "gradients": "fused", "zero": 3}, 18 / 4),
        ({"precision": "fp32", "gradients": "grad"}, 16),
        ({"precision": "fp32", "gradients": "grad", "moments": 4.0}, 12),
    ],
)
def test_bytes_a_parameter_add_up_as_published(options, total) -> None:
    assert sum(state(shards=4, replicas=4, **options).parts(1.0).values()) == total


def test_states_are_sharded_over_fewer_ranks_than_gradients_are_summed_over() -> None:
    hybrid = state(precision="bf16", zero=3, shards=4, replicas=8)
    assert sum(hybrid.parts(1.0).values()) == 18 / 4


def test_ddp_keeps_the_gradients_of_its_buckets() -> None:
    assert state(precision="fp32", gradients="fresh").growing
    assert not state(precision="fp32", gradients="fresh", replicas=2).growing
    assert state(precision="fp32", gradients="fresh", replicas=2).beside == 4
    sharded = state(precision="fp32", gradients="fresh", zero=2, shards=2, replicas=2)
    assert (sharded.growing, sharded.beside) == (True, 0)
