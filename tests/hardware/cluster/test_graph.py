"""Paths on graphs: shortest, deterministic, and as long as the closed forms say."""

from itertools import pairwise
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.hardware.cluster import graph

dims_of_tori = st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple)
dragonflies = st.tuples(st.integers(1, 9), st.integers(1, 5))


@given(dims_of_tori, st.data())
def test_coordinates_and_vertex_are_inverse(dims: tuple[int, ...], data: st.DataObject) -> None:
    vertex = data.draw(st.integers(0, prod(dims) - 1))
    position = graph.coordinates(vertex, dims)
    assert all(0 <= at < size for at, size in zip(position, dims, strict=True))
    assert graph.vertex_at(position, dims) == vertex


@given(dims_of_tori, st.data())
def test_torus_path_takes_the_shorter_way_around_every_ring(
    dims: tuple[int, ...], data: st.DataObject
) -> None:
    vertices = st.integers(0, prod(dims) - 1)
    a, b = data.draw(vertices), data.draw(vertices)
    path = graph.torus_path(a, b, dims)
    apart = zip(graph.coordinates(a, dims), graph.coordinates(b, dims), dims, strict=True)
    assert len(path) - 1 == sum(min(abs(x - y), size - abs(x - y)) for x, y, size in apart)
    assert (path[0], path[-1]) == (a, b)
    assert all(v in graph.torus_neighbours(u, dims) for u, v in pairwise(path))


@pytest.mark.parametrize(("size", "mean"), [(4, 1.0), (8, 2.0), (6, 1.5)])
def test_mean_distance_on_an_even_ring_is_a_quarter_of_it(size: int, mean: float) -> None:
    """Dally and Towles, section 5.2.2: k/4 a dimension for even k, all pairs counted."""
    for dims in ((size,), (size, size)):
        hops = [len(graph.torus_path(0, b, dims)) - 1 for b in range(prod(dims))]
        assert sum(hops) / len(hops) == mean * len(dims)


@pytest.mark.parametrize("dims", [(4, 4), (8, 8), (4, 4, 4), (6, 4)])
def test_bisection_of_a_torus_is_twice_the_cut_plane(dims: tuple[int, ...]) -> None:
    """Dally and Towles, section 5.2.1: 2 N / k cables each way through the longest dimension's
    middle, counting the wrap-around; here a dimension is cut at 0 and at its middle.
    """
    cut = max(range(len(dims)), key=lambda dim: dims[dim])
    half = {v for v in range(prod(dims)) if graph.coordinates(v, dims)[cut] < dims[cut] // 2}
    crossing = sum(w not in half for v in half for w in graph.torus_neighbours(v, dims))
    assert crossing == 2 * prod(dims) // dims[cut]


@given(dragonflies, st.data())
def test_dragonfly_paths_are_connected_and_cross_at_most_one_global_cable(
    shape: tuple[int, int], data: st.DataObject
) -> None:
    groups, routers = shape
    vertices = st.integers(0, groups * routers - 1)
    a, b = data.draw(vertices), data.draw(vertices)
    path = graph.dragonfly_path(a, b, groups, routers)
    assert (path[0], path[-1]) == (a, b)
    assert len(path) <= 4
    assert sum(u // routers != v // routers for u, v in pairwise(path)) == (
        a // routers != b // routers
    )
    assert all(v in graph.dragonfly_neighbours(u, groups, routers) for u, v in pairwise(path))


@given(dragonflies, st.data())
def test_dragonfly_way_back_is_the_way_there(shape: tuple[int, int], data: st.DataObject) -> None:
    vertices = st.integers(0, shape[0] * shape[1] - 1)
    a, b = data.draw(vertices), data.draw(vertices)
    there = graph.dragonfly_path(a, b, *shape)
    assert graph.dragonfly_path(b, a, *shape) == tuple(reversed(there))


@given(dragonflies)
def test_every_two_groups_of_a_dragonfly_share_one_cable(shape: tuple[int, int]) -> None:
    groups, routers = shape
    cables = {
        (v // routers, w // routers)
        for v in range(groups * routers)
        for w in graph.dragonfly_neighbours(v, groups, routers)
        if v // routers != w // routers
    }
    ends = sum(
        v // routers != w // routers
        for v in range(groups * routers)
        for w in graph.dragonfly_neighbours(v, groups, routers)
    )
    assert len(cables) == ends == groups * (groups - 1)


def test_a_balanced_dragonfly_has_h_global_cables_a_router() -> None:
    """Kim et al. 2008, section 3.1: g = a h + 1 groups; with a = 4, h = 2 every router has two."""
    for router in range(36):
        near = graph.dragonfly_neighbours(router, groups=9, routers=4)
        assert sum(other // 4 != router // 4 for other in near) == 2


def test_shortest_path_goes_by_the_smallest_neighbour() -> None:
    square = {0: (1, 2), 1: (0, 3), 2: (0, 3), 3: (1, 2)}
    assert graph.shortest_path(0, 3, square.__getitem__) == (0, 1, 3)


def test_no_path_leads_to_another_island() -> None:
    islands = {0: (1,), 1: (0,), 2: ()}
    assert graph.shortest_path(0, 2, islands.__getitem__) == ()
    assert graph.reachable(0, islands.__getitem__) == {0, 1}
