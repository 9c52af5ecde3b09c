"""Collectives over cables: rings that follow them reach their bound, others do not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import run
from sim.analysis.collectives.times import collective
from sim.collectives.algorithms import ring
from sim.collectives.libraries import backend as backends
from sim.collectives.schedule import GroupShape
from sim.config.errors import InputError
from sim.engine.group_links import orders
from sim.engine.group_loads import group_loads
from sim.engine.machine import Machine
from sim.engine.routes import Endpoint, Routes
from sim.hardware.cluster.networks.graph import CableGraph
from sim.hardware.cluster.networks.grids import FullMesh, Ring, Torus
from sim.hardware.cluster.topology import Topology, load
from sim.parallel.plan import Plan
from sim.scenario.scenario import Scenario

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
    return [nic for link, (_, nic) in loads.items() if link[0] == "edge" and nic]


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


def test_rings_that_find_no_cables_are_refused() -> None:
    star = load("example-folded-ring", {"network.cables": [[0, b] for b in range(1, 8)]})
    with pytest.raises(InputError, match="no ring through all nodes was found on the cables"):
        Machine(star, backends.load("nccl"))


def on_cables(topology: Topology, kind: str, algorithm: str) -> dict[tuple[int, int], float]:
    every = list(range(topology.gpus))
    shape = GroupShape.of(topology.gpus, topology.gpus_per_node)
    loads = group_loads(every, topology, shape, kind, algorithm)
    return {
        (int(link[1]), int(link[2])): nic
        for link, (_, nic) in loads.items()
        if link[0] == "edge" and nic
    }


@pytest.mark.parametrize("n", [4, 5, 8, 9])
def test_an_all_to_all_on_a_ring_passes_as_many_cables_as_its_nodes_are_apart(n: int) -> None:
    """S/n to each node: all distances together, by 2n directions, are what a cable carries."""
    loads = on_cables(single(Ring(**KEYS, size=n)), "all_to_all", "direct")
    distances = n * sum(min(d, n - d) for d in range(1, n))
    assert sum(loads.values()) == pytest.approx(distances / (n - 1))
    assert max(loads.values()) >= distances / (n - 1) / (2 * n) * (1 - 1e-12)


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter"])
def test_halving_and_doubling_fills_a_full_mesh_between_powers_of_two(kind: str) -> None:
    """Node i exchanges with i ^ 1, i ^ 2, i ^ 4; the farther, the more: 1, 2 and 4 of 7 parts."""
    algorithm = {"algorithm": tuple(load("dgx-a100-hdr", NAMED).network.algorithm)}
    mesh = FullMesh(**KEYS, **algorithm, size=8)
    loads = on_cables(single(mesh), kind, "halving_doubling")
    assert loads == pytest.approx({(i, i ^ d): d / 7 for i in range(8) for d in (1, 2, 4)})


NAMED = {"network.algorithm": "halving_doubling"}


@pytest.mark.parametrize("name", ["halving_doubling", "tree", "hierarchical", "direct"])
def test_bytes_over_cables_are_those_that_leave_the_busiest_node(name: str) -> None:
    """A full mesh carries each byte over one cable, so its cables show what nodes send."""
    cluster = load("example-full-mesh", {"network.algorithm": name, "network.size": 6, "gpus": 48})
    loads = on_cables(cluster, "all_reduce", name)
    sent = [sum(load for (a, _), load in loads.items() if a == node) for node in range(6)]
    assert max(sent) == pytest.approx(1.0)


def test_trees_that_the_library_takes_itself_take_their_own_way() -> None:
    cluster = load("example-full-mesh")
    assert on_cables(cluster, "all_reduce", "tree") != on_cables(cluster, "all_reduce", "ring")


@pytest.mark.parametrize("gpus", [128, 112, 40])
def test_pairs_load_the_uplinks_with_all_that_leaves_a_pod(gpus: int) -> None:
    """A ring passes a pod once; where all send to all, every pair of two pods adds its share."""
    topology = load("example-fat-tree").with_gpus(gpus)
    shape, nodes = GroupShape.of(gpus, 8), gpus // 8
    loads = group_loads(range(gpus), topology, shape, "all_to_all", "direct")
    rings = group_loads(range(gpus), topology, shape, "all_gather", "ring")
    pods = [topology.pod_of(node) for node in range(nodes)]
    for pod in set(pods):
        leaving = sum(a == pod != b for a in pods for b in pods) / (nodes - 1)
        for way in ("pod-up", "pod-down"):
            assert loads[way, pod][1] == pytest.approx(leaving, rel=1e-12)
            assert rings[way, pod][1] == 1.0
    assert loads["nic-up", 0, 0] == rings["nic-up", 0, 0]


def test_pairs_between_pods_wait_for_their_uplinks() -> None:
    """16 nodes in pods of 4 under a quarter of their NICs: 4 x 12 / 15 of a node's bytes pass one
    node's worth of uplinks."""
    narrow = {"network.latency": "0 us", "network.hop_latency": "0 us"}
    times = [
        collective(
            "all_to_all", 2**33, "example-fat-tree",
            settings={**narrow, "network.oversubscription": over},
        ).choice.seconds
        for over in (1.0, 4.0)
    ]  # fmt: skip
    assert times[1] == pytest.approx(48 / 15 * times[0], rel=0.02)


def test_experts_over_several_pods_fold_exactly() -> None:
    pods = {"network.shape": "fat-tree", "network.nodes_per_pod": 2, "network.oversubscription": 4}
    job = Scenario(
        model="qwen3-30b-a3b",
        topology="dgx-h100-ndr",
        gpus=64,
        plan=Plan(global_batch=64, zero=1, ep=64),
        change={**pods, "model.layers": 2},
    )
    folded, unfolded = (run(job, unfold=unfold) for unfold in (False, True))
    assert folded.roles < unfolded.roles
    assert folded.step_time == pytest.approx(unfolded.step_time, rel=1e-9)
