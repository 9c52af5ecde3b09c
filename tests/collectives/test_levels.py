"""The loads of ports and NICs in closed form equal what the rounds send over the routes."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import ceil, log2
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.collectives.algorithms import direct, halving_doubling, hierarchical, nvls, ring, tree
from sim.collectives.readings import Edge, condense
from sim.collectives.schedule import CollectiveKind, CollectiveSchedule, GroupShape, LevelLoads

CLUSTERS = [(1, 2), (1, 8), (2, 2), (2, 4), (3, 3), (4, 2), (5, 1), (6, 4)]
clusters = pytest.mark.parametrize(("nodes", "per_node"), CLUSTERS)
SYMMETRIC: list[CollectiveKind] = ["all_reduce", "all_gather", "reduce_scatter"]


def shape(nodes: int, per_node: int) -> GroupShape:
    return GroupShape(ranks=nodes * per_node, nodes=nodes, per_node=per_node)


def turned(edges: Sequence[Edge], per_node: int) -> list[Edge]:
    """The same traffic as `per_node` channels that start at different members of each node."""
    return [
        (_turn(src, by, per_node), _turn(dst, by, per_node), load / per_node)
        for by in range(per_node)
        for src, dst, load in edges
    ]


def _turn(rank: int, by: int, per_node: int) -> int:
    return rank - rank % per_node + (rank + by) % per_node


def edges(algorithm: ModuleType, kind: CollectiveKind, ranks: int) -> Sequence[Edge]:
    return condense(getattr(algorithm, kind)(ranks)).edges


def levels(edges: Iterable[Edge], per_node: int) -> LevelLoads:
    """Bytes at the busiest port and node, when rank r sits in node r // per_node."""
    ports: defaultdict[tuple[str, int], float] = defaultdict(float)
    nics: defaultdict[tuple[str, int], float] = defaultdict(float)
    for src, dst, load in edges:
        inside = src // per_node == dst // per_node
        for direction, rank in (("out", src), ("in", dst)):
            if inside:
                ports[direction, rank] += load
            else:
                nics[direction, rank // per_node] += load
    return LevelLoads(port=max(ports.values(), default=0.0), nic=max(nics.values(), default=0.0))


def close(stated: LevelLoads, counted: LevelLoads) -> bool:
    return stated.port == pytest.approx(counted.port) and stated.nic == pytest.approx(counted.nic)


@clusters
@pytest.mark.parametrize("kind", SYMMETRIC)
def test_rings_load_ports_and_nics_as_stated(
    kind: CollectiveKind, nodes: int, per_node: int
) -> None:
    channels = turned(edges(ring, kind, nodes * per_node), per_node)
    assert close(ring.loads(kind, shape(nodes, per_node)), levels(channels, per_node))


@clusters
@pytest.mark.parametrize("kind", ["broadcast", "reduce"])
def test_chains_load_ports_and_nics_as_stated(
    kind: CollectiveKind, nodes: int, per_node: int
) -> None:
    """A chain ends in the last node, so only chains through two or more nodes fill all hops."""
    channels = turned(edges(ring, kind, nodes * per_node), per_node)
    counted = levels(channels, per_node)
    stated = ring.loads(kind, shape(nodes, per_node))
    assert stated.nic == counted.nic
    assert counted.port <= stated.port + 1e-12


@clusters
def test_trees_load_ports_and_nics_as_stated(nodes: int, per_node: int) -> None:
    plan = tree.all_reduce(nodes * per_node, per_node=per_node)
    channels = turned(condense(plan).edges, per_node)
    assert close(tree.loads("all_reduce", shape(nodes, per_node)), levels(channels, per_node))


@clusters
@pytest.mark.parametrize("kind", [*SYMMETRIC, "all_to_all", "broadcast", "reduce"])
def test_direct_loads_ports_and_nics_as_stated(
    kind: CollectiveKind, nodes: int, per_node: int
) -> None:
    counted = levels(edges(direct, kind, nodes * per_node), per_node)
    assert close(direct.loads(kind, shape(nodes, per_node)), counted)


EVERY: list[CollectiveKind] = [*SYMMETRIC, "all_to_all", "broadcast", "reduce"]


@clusters
@pytest.mark.parametrize("kind", EVERY)
def test_halving_and_doubling_load_ports_and_nics_as_stated(
    kind: CollectiveKind, nodes: int, per_node: int
) -> None:
    counted = levels(edges(halving_doubling, kind, nodes * per_node), per_node)
    assert close(halving_doubling.loads(kind, shape(nodes, per_node)), counted)


@clusters
@pytest.mark.parametrize("kind", EVERY)
def test_the_hierarchical_algorithm_loads_ports_and_nics_as_stated(
    kind: CollectiveKind, nodes: int, per_node: int
) -> None:
    """Chains inside a node fill all hops only where they are long."""
    plan = getattr(hierarchical, kind)(nodes * per_node, per_node=per_node)
    counted = levels(turned(condense(plan).edges, per_node), per_node)
    stated = hierarchical.loads(kind, shape(nodes, per_node))
    assert stated.nic == pytest.approx(counted.nic)
    if kind in ("broadcast", "reduce"):
        assert counted.port <= stated.port + 1e-12
    else:
        assert stated.port == pytest.approx(counted.port)


@given(nodes=st.integers(2, 64), g=st.integers(1, 8))
def test_a_hierarchical_all_reduce_sends_what_is_left_of_a_node_over_its_rails(
    nodes: int, g: int
) -> None:
    """Cho et al. 2019: 2(g-1)/g S in a node, 2(N-1)/N S/g on each rail, less than rings send."""
    stated = hierarchical.loads("all_reduce", shape(nodes, g))
    assert stated.port == pytest.approx(2 * (g - 1) / g)
    assert stated.nic / g == pytest.approx(2 * (nodes - 1) / nodes / g)
    assert stated.nic <= ring.loads("all_reduce", shape(nodes, g)).nic + 1e-12


@given(ranks=st.integers(2, 4096))
def test_halving_and_doubling_take_the_logarithm_of_the_ranks(ranks: int) -> None:
    for nodes, per_node in ((1, ranks), (ranks, 1)):
        stated = halving_doubling.steps("all_reduce", shape(nodes, per_node))
        assert stated.intra + stated.inter == 2 * ceil(log2(ranks))


def crossings(plan: CollectiveSchedule, per_node: int) -> int:
    """Most sends between nodes on a path on which every send waits for the one before."""
    reached = [0] * plan.ranks
    for round_ in plan.rounds:
        before = list(reached)
        for send in round_:
            crossed = send.src // per_node != send.dst // per_node
            reached[send.dst] = max(reached[send.dst], before[send.src] + crossed)
    return max(reached)


@clusters
@pytest.mark.parametrize("kind", EVERY)
def test_halving_and_doubling_cross_nodes_as_often_as_stated(
    kind: CollectiveKind, nodes: int, per_node: int
) -> None:
    plan = getattr(halving_doubling, kind)(nodes * per_node)
    stated = halving_doubling.steps(kind, shape(nodes, per_node))
    assert crossings(plan, per_node) <= stated.inter
    assert stated.intra + stated.inter == len(plan.rounds)


@pytest.mark.parametrize("algorithm", [halving_doubling, hierarchical])
def test_nodes_with_unlike_numbers_of_members_are_refused(algorithm: ModuleType) -> None:
    uneven = GroupShape(ranks=12, nodes=2, per_node=8)
    with pytest.raises(ValueError, match="equally many members on each node, not 12 on 2 nodes"):
        algorithm.loads("all_reduce", uneven)


@pytest.mark.parametrize(("nodes", "per_node", "loads"), [(1, 2, (1.0, 0.0)), (2, 1, (0.0, 1.0))])
def test_one_message_takes_the_port_or_the_nic(
    nodes: int, per_node: int, loads: tuple[float, float]
) -> None:
    stated = direct.loads("point_to_point", shape(nodes, per_node))
    assert (stated.port, stated.nic) == loads


def through_switch(kind: CollectiveKind, members: int) -> Iterable[tuple[int, str, float]]:
    """What NVLS moves by the ports of one node: (member, direction, bytes for each byte of S)."""
    share = 1 / members
    for member in range(members):
        if kind != "all_gather":
            yield member, "out", 1.0  # the switch fetches all of a member's buffer to add it up
            yield member, "in", share  # and answers with the sums of one share
        if kind != "reduce_scatter":
            yield member, "out", share  # one share goes up once,
            yield member, "in", 1.0  # and every share comes down to everyone


@pytest.mark.parametrize("members", [2, 4, 8])
@pytest.mark.parametrize("kind", SYMMETRIC)
def test_nvls_loads_ports_as_stated(kind: CollectiveKind, members: int) -> None:
    ports: dict[tuple[int, str], float] = {}
    for member, direction, load in through_switch(kind, members):
        ports[member, direction] = ports.get((member, direction), 0.0) + load
    assert nvls.loads(kind, shape(1, members)).port == pytest.approx(max(ports.values()))


@given(nodes=st.integers(2, 64), per_node=st.integers(1, 8))
def test_all_reduce_crosses_nodes_at_least_as_often_as_the_cut_demands(
    nodes: int, per_node: int
) -> None:
    """A node must learn of the others' sums and tell them its own: at least S out of it."""
    for algorithm in (ring, tree, nvls):
        assert algorithm.loads("all_reduce", shape(nodes, per_node)).nic >= 1.0 - 1e-12
