"""Uplinks that are told apart: which one a connection takes, and what that costs."""

from collections import defaultdict
from copy import deepcopy
from typing import Any

import pytest

import sim
from sim.analysis.samples.answer import Samples
from sim.config.errors import InputError
from sim.engine.group_loads import group_loads, shape_of
from sim.engine.play import play
from sim.hardware.cluster.topology import Topology, load
from sim.parallel.step import training_step
from sim.scenario.setup import PlanSetup

TREE = {"gpus": 64, "network.radix": 32}  # leaves of 2 nodes with 16 NICs and 16 uplinks
JOB = {
    "model": "llama3-8b",
    "topology": "h100-grand-teton-roce",
    "gpus": 64,
    "plan": {"global_batch": 32, "tp": 8, "pp": 2, "dp": 4, "microbatch": 2},
}
LEAVES = {"network.nodes_per_pod": 2, "network.oversubscription": 1.0, "model.layers": 4}


def tree(**network: Any) -> Topology:
    return load(
        "example-fat-tree",
        TREE
        | {"network.oversubscription": 1.0, "network.nodes_per_pod": 0}
        | {f"network.{k}": v for k, v in network.items()},
    )


def step(**network: Any) -> float:
    changes = LEAVES | {f"network.{key}": value for key, value in network.items()}
    return float(sim.run(sim.kind.described(deepcopy(JOB), changes)).step_time)


def all_to_all(**network: Any) -> float:
    settings = {f"network.{key}": value for key, value in (TREE_RAILS | network).items()}
    return sim.collective(
        "all_to_all", 2**28, "dgx-h100-ndr", gpus=128, settings=settings
    ).choice.seconds


TREE_RAILS = {"radix": 8}  # leaves of 4 nodes a rail


@pytest.mark.parametrize("routing", ["adaptive", "static", "ecmp"])
def test_every_byte_that_leaves_a_leaf_arrives_at_another(routing: str) -> None:
    """Bytes over the uplinks of a leaf do not depend on which of them is taken."""
    sent: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for kind, way in (("all_reduce", "ring"), ("all_to_all", "direct")):
        topology, gpus = tree(routing=routing, down=[[0, 0]]), list(range(64))
        loads = group_loads(gpus, topology, shape_of(gpus, topology), kind, way)
        for (name, *place), (_, nic) in loads.items():
            if str(name).startswith("leaf"):
                sent[f"{kind} {name}"][place[0]] += nic
    for kind, out in (("all_reduce", 1.0), ("all_to_all", 2 * 6 / 7)):
        for way in ("leaf-up", "leaf-down"):
            assert dict(sent[f"{kind} {way}"]) == pytest.approx(dict.fromkeys(range(4), out))


def test_a_hash_takes_every_uplink_about_as_often_and_a_seed_changes_it() -> None:
    takes = {
        seed: [tree(routing="ecmp", seed=seed).route(0, 16 + gpu)[1] for gpu in range(48)]
        for seed in (0, 1)
    }
    assert takes[0] != takes[1]
    assert len({cable for *_, cable in takes[0]}) > 12  # of 16; 15 are expected of 48 draws


def test_a_target_has_an_uplink_of_its_own_where_there_are_as_many_as_nics() -> None:
    """D-mod-K: messages to the 16 NICs of a leaf take its 16 uplinks."""
    cables = {tree(routing="static").route(0, gpu)[1] for gpu in range(16, 32)}
    assert len(cables) == 16


def test_a_target_on_a_rail_has_an_uplink_of_its_own_where_there_are_as_many_as_nodes() -> None:
    """D-mod-K: a leaf of a rail has a NIC of each of its 4 nodes, and 4 uplinks."""
    rails = {f"network.{key}": value for key, value in TREE_RAILS.items()}
    topology = load("dgx-h100-ndr", rails | {"network.routing": "static"})
    cables = {topology.route(3, 32 + 8 * node + 3)[1] for node in range(4)}
    assert len(cables) == 4


def test_no_routing_is_faster_than_an_even_spread_and_more_connections_come_closer() -> None:
    even, static, hashed = (step(routing=name) for name in ("adaptive", "static", "ecmp"))
    assert even == pytest.approx(step(), rel=1e-9)
    assert static >= even * (1 - 1e-9)
    assert hashed > even * 1.001
    assert even < step(routing="ecmp", paths=16) < hashed


def test_one_uplink_is_every_routing() -> None:
    times = {step(routing=name, oversubscription=16.0) for name in ("static", "ecmp")}
    pods = step(oversubscription=16.0)
    assert max(times) == pytest.approx(min(times), rel=1e-9)
    assert max(times) == pytest.approx(pods, rel=1e-9)


def test_uplinks_that_are_down_leave_less_for_all() -> None:
    few = [[leaf, cable] for leaf in range(4) for cable in range(15)]
    for routing in ("adaptive", "static", "ecmp"):
        whole, rest = step(routing=routing), step(routing=routing, down=few)
        assert rest > 1.01 * whole
    one = step(oversubscription=16.0)
    assert step(down=few) == pytest.approx(one, rel=1e-9)


@pytest.mark.parametrize("routing", ["static", "ecmp"])
def test_only_connections_of_an_uplink_that_is_down_move(routing: str) -> None:
    whole, rest = tree(routing=routing), tree(routing=routing, down=[[0, 3]])
    for gpu in range(16, 64):
        before, after = (own.route(0, gpu)[1][-1] for own in (whole, rest))
        assert after == before or before == 3
        assert after != 3


def test_folded_hashes_equal_ranks_played_one_by_one() -> None:
    setup = sim.kind.set_up(sim.kind.described(deepcopy(JOB), LEAVES | {"network.routing": "ecmp"}))
    assert isinstance(setup, PlanSetup)
    program = training_step(setup.job)
    ends = [play(program, setup.machine, unfold=unfold).step_time for unfold in (False, True)]
    assert ends[0] == pytest.approx(ends[1], rel=1e-9)


def test_nics_of_a_rail_meet_below_the_spines() -> None:
    rails, tree_ = load("dgx-h100-ndr", {"network.pxn": False}), tree(routing="static")
    assert [link[0] for link in rails.route(3, 8 + 3)] == ["nic-up", "nic-down"]
    across = ["nic-up", "leaf-up", "leaf-down", "nic-down"]
    assert [link[0] for link in rails.route(3, 8 + 4)] == across
    relayed = load("dgx-h100-ndr").route(3, 8 + 4)
    assert [link[0] for link in relayed] == ["port-up", "port-down", "nic-up", "nic-down"]
    assert [link[0] for link in tree_.route(3, 8 + 4)] == ["nic-up", "nic-down"]
    assert [link[0] for link in tree_.route(3, 16 + 3)] == across


def test_only_without_pxn_do_items_that_change_rails_load_the_spines() -> None:
    usual = all_to_all()
    assert all_to_all(spines=False) == pytest.approx(usual)
    assert all_to_all(pxn=False) == pytest.approx(usual)
    thin = all_to_all(pxn=False, oversubscription=4.0)
    assert thin > all_to_all(oversubscription=4.0, nodes_per_pod=4)
    with pytest.raises(InputError, match="nothing joins rail 0 to rail 1; set pxn = true"):
        all_to_all(pxn=False, spines=False)


@pytest.mark.parametrize(
    ("network", "fault"),
    [
        ({"routing": "ecmp", "radix": 0}, "its leaf switches are unknown; add radix"),
        ({"radix": 1}, "have no room for a node; set radix at least"),
        ({"down": [[0, 16]]}, "a leaf has uplinks 0 to 15, not 16"),
        ({"down": [[99, 0]]}, "no leaf 99; name leaves 0 to 3"),
        ({"down": [[-1, 0]]}, "no leaf -1; name leaves 0 to 3"),
        ({"down": [[1, cable] for cable in range(16)]}, "leaf 1 has no uplink left"),
        ({"routing": "spray"}, "routing"),
        ({"paths": 0, "routing": "ecmp"}, "paths"),
    ],
)
def test_uplinks_that_cannot_be_are_refused(network: dict[str, Any], fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        tree(**network)


def test_seeds_of_hashes_are_runs() -> None:
    found = sim.run(
        sim.kind.described(deepcopy(JOB), LEAVES | {"network.routing": "ecmp"}), samples=3
    )
    values = found.get("drawn")["step_time"]["runs"]
    assert len(set(values)) > 1
    assert isinstance(sim.run(sim.kind.described(deepcopy(JOB), LEAVES), samples=3), Samples)
