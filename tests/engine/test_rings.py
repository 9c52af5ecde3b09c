"""Collectives over cables: rings that follow them reach their bound, others do not."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.collectives.algorithms import ring
from sim.collectives.group import GroupShape
from sim.collectives.libraries import backend as backends
from sim.config.errors import InputError
from sim.engine.communicators import group_loads
from sim.engine.machine import Machine
from sim.engine.rings import orders
from sim.engine.routes import Endpoint, Routes
from sim.hardware.cluster.networks.full_mesh import FullMesh
from sim.hardware.cluster.networks.graph import CableGraph
from sim.hardware.cluster.networks.ring import Ring
from sim.hardware.cluster.networks.torus import Torus
from sim.hardware.cluster.topology import Topology, load

B = 25e9
KEYS = {"kind": "roce", "bandwidth": B, "latency": 1e-6}


def single(network: CableGraph | FullMesh | Ring | Torus) -> Topology:
    """A network of nodes of one device each."""
    device = load("example-ring").device
    return Topology(
        name="test", device=device, gpus=network.largest, gpus_per_node=1, network=network
    )


def cabled_in(order: list[int], *, spread: bool) -> Topology:
    """Nodes cabled as a ring that passes them in some order."""
    cables = tuple(zip(order, [*order[1:], order[0]], strict=True))
    return single(CableGraph(**KEYS, size=len(order), cables=cables, spread=spread))


def carried(topology: Topology, gpus: list[int] | None = None) -> list[float]:
    """What a byte out of every node puts on each direction of each loaded cable."""
    gpus = gpus or list(range(topology.gpus))
    shape = GroupShape.of(len(gpus), topology.gpus_per_node)
    loads = group_loads(gpus, topology, shape)
    return [nic for link, (_, nic) in loads.items() if link[0] == "edge"]


def seconds(topology: Topology) -> float:
    """An all-reduce of a byte along the rings, without latencies."""
    shape = GroupShape.of(topology.gpus, topology.gpus_per_node)
    return max(carried(topology)) * ring.loads("all_reduce", shape).nic / B


@given(order=st.integers(3, 12).flatmap(lambda n: st.permutations(range(n))))
def test_an_all_reduce_along_the_cables_of_a_ring_reaches_its_bound(order: list[int]) -> None:
    """Half of S in each direction, at 2(n-1)/n bytes a byte (Patarasuk and Yuan 2009)."""
    n, followed = len(order), cabled_in(order, spread=True)
    assert carried(followed) == pytest.approx([1 / 2] * (2 * n))
    assert seconds(followed) == pytest.approx(2 * (n - 1) / n * (1 / 2) / B)


@given(order=st.integers(3, 12).flatmap(lambda n: st.permutations(range(n))))
def test_one_ring_in_the_order_of_ranks_takes_at_least_twice_as_long(order: list[int]) -> None:
    """Twice where it happens to follow the cables, in one direction; longer by its detours."""
    n, place = len(order), {node: i for i, node in enumerate(order)}
    steps = [(place[(node + 1) % n] - place[node]) % n for node in range(n)]
    hops = [min(step, n - step) for step in steps]
    ratio = seconds(cabled_in(order, spread=False)) / seconds(cabled_in(order, spread=True))
    if max(hops) == 1:
        assert ratio == pytest.approx(2)
    assert ratio >= 2 * max(1, sum(hops) / (2 * n)) * (1 - 1e-12)


def test_the_folded_ring_is_six_times_slower_for_rings_that_do_not_follow_it() -> None:
    """Three hops of a ring in rank order share a direction of a cable; half of S does otherwise."""
    folded = load("example-folded-ring")
    ranks = load("example-folded-ring", {"network.spread": False})
    assert seconds(ranks) / seconds(folded) == pytest.approx(6)


@pytest.mark.parametrize(
    ("network", "rings"),
    [
        (Torus(**KEYS, dims=(4, 4), spread=True), 4),
        (Torus(**KEYS, dims=(3, 5), spread=True), 4),
        (FullMesh(**KEYS, size=5, spread=True), 4),
        (FullMesh(**KEYS, size=8, spread=True), 6),
        (Ring(**KEYS, size=9, spread=True), 2),
    ],
)
def test_rings_share_no_direction_of_a_cable(network: Torus, rings: int) -> None:
    """Two cycles fill a torus of two dimensions (Kotzig 1973), (n-1)/2 a full mesh of odd n."""
    loads = carried(single(network))
    assert len(orders(network)) == rings
    assert loads == pytest.approx([1 / rings] * len(loads))
    assert len(loads) == rings * network.vertices


def test_some_of_the_nodes_pass_each_other_s_bytes_in_the_order_of_the_cables() -> None:
    folded = load("example-folded-ring")
    assert max(carried(folded, [0, 4, 7, 3])) == pytest.approx(1 / 2)
    assert max(carried(load("example-folded-ring", {"network.spread": False}), [0, 4, 7, 3])) >= 1


def test_several_cables_between_two_nodes_and_switches_carry_their_number() -> None:
    trunk = CableGraph(
        **KEYS, size=4, switches=2, cables=((0, 4), (1, 4), (2, 5), (3, 5), (4, 5, 2), (5, 4))
    )
    cluster = single(trunk)
    assert cluster.route(0, 3) == (("edge", 0, 4), ("edge", 4, 5), ("edge", 5, 3))
    assert cluster.bandwidth(("edge", 4, 5)) == 3 * cluster.bandwidth(("edge", 0, 4))
    assert len(list(cluster.links)) == 2 * (4 + 1)
    with pytest.raises(InputError, match="has room for 4 nodes, not 6"):
        cluster.with_gpus(6)


def nic_loads(topology: Topology, gpus: list[int]) -> dict[str, set[float]]:
    shape = GroupShape.of(len(gpus), topology.gpus_per_node)
    loads: dict[str, set[float]] = {}
    for link, (_, nic) in group_loads(gpus, topology, shape).items():
        if nic:
            loads.setdefault(str(link[0]), set()).add(round(nic, 12))
    return loads


@pytest.mark.parametrize(("name", "nics"), [("perlmutter", 4), ("example-dragonfly", 8)])
def test_rings_through_a_dragonfly_spread_over_the_nics_of_a_node(name: str, nics: int) -> None:
    cluster = load(name)
    loads = nic_loads(cluster, list(range(16 * cluster.gpus_per_node)))
    assert loads["nic-up"] == loads["nic-down"] == {1 / nics}


def test_messages_on_a_dragonfly_spread_over_the_nics_of_a_node() -> None:
    cluster = load("example-dragonfly")
    routes = Routes(Machine(cluster, backends.load("nccl")), 0.0, None)
    loads, _ = routes.between(Endpoint(tuple(range(8))), Endpoint(tuple(range(64, 72))))
    assert {share for link, share in loads if link[0] == "nic-up"} == {1 / 8}
    assert {share for link, share in loads if link[0] == "edge"} == {1.0}


@pytest.mark.parametrize("nodes", [2, 16, 128])
def test_hierarchical_all_reduces_load_the_nics_of_a_dragonfly_in_closed_form(nodes: int) -> None:
    """2(N-1)/N S/g on each of g rails, where a ring has 2(n-1)/n S/g."""
    n, g, size = 4 * nodes, 4, 1e9
    costs = [
        Machine(load("perlmutter", {"network.algorithm": name}), backends.load("nccl")).call_cost(
            "all_reduce", size, GroupShape.of(n, g)
        )
        for name in ("hierarchical", "ring")
    ]
    assert [cost.algorithm for cost in costs] == ["hierarchical", "ring"]
    between, around = (2 * (count - 1) / count * size / g for count in (nodes, n))
    assert costs[0].nic / costs[1].nic == pytest.approx(between / around)
    assert costs[0].latency < costs[1].latency


def refusals() -> Iterator[tuple[str, dict[str, object], str]]:
    star = {"network.cables": [[0, b] for b in range(1, 8)]}
    yield "example-folded-ring", star, "no ring through all its nodes was found on its cables"
    for name in ("halving_doubling", "tree"):
        for cluster in ("perlmutter", "example-torus-2d"):
            yield cluster, {"network.algorithm": name}, "choose ring or hierarchical, whose rings"


@pytest.mark.parametrize(("name", "overrides", "said"), list(refusals()))
def test_ways_that_are_not_known_are_refused(
    name: str, overrides: dict[str, object], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        Machine(load(name, overrides), backends.load("nccl"))
