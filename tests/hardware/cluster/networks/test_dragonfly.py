"""Dragonflies: minimal routes, and as many cables as the paper has."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sim.hardware.cluster.networks.dragonfly import Dragonfly


def dragonfly(groups: int, routers: int) -> Dragonfly:
    return Dragonfly(
        kind="infiniband", bandwidth=25e9, latency=1e-6, nics=1,
        groups=groups, routers=routers, nodes_per_router=1,
    )  # fmt: skip


dragonflies = st.builds(dragonfly, st.integers(1, 9), st.integers(1, 5))


@given(dragonflies, st.data())
def test_dragonfly_paths_are_connected_and_cross_at_most_one_global_cable(
    network: Dragonfly, data: st.DataObject
) -> None:
    routers = network.routers
    vertices = st.integers(0, network.vertices - 1)
    a, b = data.draw(vertices), data.draw(vertices)
    path = network.path(a, b)
    assert (path[0], path[-1]) == (a, b)
    assert len(path) <= 4
    assert sum(u // routers != v // routers for u, v in pairwise(path)) == (
        a // routers != b // routers
    )
    assert all(v in network.neighbours(u) for u, v in pairwise(path))


@given(dragonflies, st.data())
def test_dragonfly_way_back_is_the_way_there(network: Dragonfly, data: st.DataObject) -> None:
    vertices = st.integers(0, network.vertices - 1)
    a, b = data.draw(vertices), data.draw(vertices)
    assert network.path(b, a) == tuple(reversed(network.path(a, b)))


@given(dragonflies)
def test_every_two_groups_of_a_dragonfly_share_one_cable(network: Dragonfly) -> None:
    groups, routers = network.groups, network.routers
    crossing = [
        (v // routers, w // routers)
        for v in range(network.vertices)
        for w in network.neighbours(v)
        if v // routers != w // routers
    ]
    assert len(set(crossing)) == len(crossing) == groups * (groups - 1)


def test_a_balanced_dragonfly_has_h_global_cables_a_router() -> None:
    """Kim et al. 2008, section 3.1: g = a h + 1 groups; with a = 4, h = 2 every router has two."""
    network = dragonfly(groups=9, routers=4)
    for router in range(36):
        assert sum(peer // 4 != router // 4 for peer in network.neighbours(router)) == 2
