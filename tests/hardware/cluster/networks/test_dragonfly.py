"""Dragonflies: minimal routes, and as many cables as the paper has."""

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sim.hardware.cluster.networks.dragonfly import Dragonfly
from sim.hardware.cluster.topology import load


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


@given(dragonflies)
def test_a_dragonfly_has_the_cables_and_the_diameter_of_the_paper(network: Dragonfly) -> None:
    """Kim et al. 2008, section 3.1: g a(a-1)/2 local and g(g-1)/2 global ones; at most 3 hops, and
    3 as soon as there are routers that hold no cable to a group."""
    g, a = network.groups, network.routers
    cables = sum(link[0] == "edge" for link in network.links(network.largest)) / 2
    assert cables == g * a * (a - 1) / 2 + g * (g - 1) / 2
    every = range(network.vertices)
    diameter = max(len(network.path(x, y)) - 1 for x in every for y in every)
    assert diameter == (3 if g > 1 and a > 1 else min(1, network.vertices - 1))


def test_perlmutter_has_the_ports_that_its_documentation_counts() -> None:
    """16 of a switch's 64 ports lead to NICs, a node's four to the four switches of its chassis."""
    cluster = load("perlmutter")
    network = cluster.network
    assert isinstance(network, Dragonfly)
    at = Counter(network.vertex_of(node, nic) for node in range(cluster.nodes) for nic in range(4))
    assert (cluster.nodes, len(at), set(at.values())) == (1536, 12 * 32, {16})
    assert {network.vertex_of(17, nic) for nic in range(4)} == {4, 5, 6, 7}
    assert cluster.route(0, 63) == (("nic-up", 0, 0), ("edge", 0, 3), ("nic-down", 15, 3))
