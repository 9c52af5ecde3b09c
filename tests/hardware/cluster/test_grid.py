"""Routes on grids: shortest, deterministic, and as long as the closed forms say."""

from itertools import pairwise
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.hardware.cluster import grid
from sim.hardware.cluster.route import reachable, shortest_path

dims_of_tori = st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple)


@given(dims_of_tori, st.data())
def test_coordinates_and_vertex_are_inverse(dims: tuple[int, ...], data: st.DataObject) -> None:
    vertex = data.draw(st.integers(0, prod(dims) - 1))
    position = grid.coordinates(vertex, dims)
    assert all(0 <= index < size for index, size in zip(position, dims, strict=True))
    assert grid.vertex_at(position, dims) == vertex


@given(dims_of_tori, st.data())
def test_torus_path_takes_the_shorter_way_around_every_ring(
    dims: tuple[int, ...], data: st.DataObject
) -> None:
    vertices = st.integers(0, prod(dims) - 1)
    a, b = data.draw(vertices), data.draw(vertices)
    path = grid.path(a, b, dims)
    apart = zip(grid.coordinates(a, dims), grid.coordinates(b, dims), dims, strict=True)
    assert len(path) - 1 == sum(min(abs(x - y), size - abs(x - y)) for x, y, size in apart)
    assert (path[0], path[-1]) == (a, b)
    assert all(v in grid.neighbours(u, dims) for u, v in pairwise(path))


@pytest.mark.parametrize(("size", "mean"), [(4, 1.0), (8, 2.0), (6, 1.5)])
def test_mean_distance_on_an_even_ring_is_a_quarter_of_it(size: int, mean: float) -> None:
    """Dally and Towles, section 5.2.2: k/4 a dimension for even k, all pairs counted."""
    for dims in ((size,), (size, size)):
        hops = [len(grid.path(0, b, dims)) - 1 for b in range(prod(dims))]
        assert sum(hops) / len(hops) == mean * len(dims)


@pytest.mark.parametrize("dims", [(4, 4), (8, 8), (4, 4, 4), (6, 4)])
def test_bisection_of_a_torus_is_twice_the_cut_plane(dims: tuple[int, ...]) -> None:
    """Dally and Towles, section 5.2.1: 2 N / k cables each way through the longest dimension's
    middle, counting the wrap-around; here a dimension is cut at 0 and at its middle.
    """
    cut = max(range(len(dims)), key=lambda dim: dims[dim])
    half = {v for v in range(prod(dims)) if grid.coordinates(v, dims)[cut] < dims[cut] // 2}
    crossing = sum(w not in half for v in half for w in grid.neighbours(v, dims))
    assert crossing == 2 * prod(dims) // dims[cut]


def test_shortest_path_goes_by_the_smallest_neighbour() -> None:
    square = {0: (1, 2), 1: (0, 3), 2: (0, 3), 3: (1, 2)}
    assert shortest_path(0, 3, square.__getitem__) == (0, 1, 3)


def test_no_path_leads_to_another_island() -> None:
    islands = {0: (1,), 1: (0,), 2: ()}
    assert shortest_path(0, 2, islands.__getitem__) == ()
    assert reachable(0, islands.__getitem__) == {0, 1}
