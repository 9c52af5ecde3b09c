"""Collectives message by message: what is played on arrays is what the clock plays, at any size."""

from types import ModuleType

import numpy as np
import pytest

from sim.collectives.algorithms import direct, ring
from sim.collectives.readings import messages
from sim.collectives.schedule import CollectiveKind, algorithms, offered
from sim.engine.messages import PlayedMessages, play_collective, play_messages
from sim.hardware.cluster import topology
from sim.hardware.cluster.slow_links import slowed
from sim.hardware.cluster.topology import Topology

GIB = 2.0**30
PEER = [(8, 35_007_015), (64, 39_438_127), (256, 40_099_261)]
"""Ranks, and ns of a ring all-reduce of 1 GiB at 50 GiB/s and 500 ns in ASTRA-sim 4f387bc."""


def flat(ranks: int, **changes: str) -> Topology:
    """One device a node on one switch, as the peer assumes."""
    wires = {"bandwidth": "53.6870912 GB/s", "latency": "500 ns", "efficiency": 1.0, "nics": 1}
    values = {f"network.{key}": value for key, value in {**wires, **changes}.items()}
    pods = {"network.oversubscription": 1.0, "network.nodes_per_pod": 0}
    return topology.load("example-fat-tree", {**values, **pods, "gpus": ranks, "gpus_per_node": 1})


def tree(ranks: int, pod: int, each: int = 1, over: float = 2.0) -> Topology:
    """Pods of so many GPUs under uplinks that carry a part of what is below them."""
    keys = {"gpus": ranks, "gpus_per_node": each, "network.nics": each}
    pods = {"network.nodes_per_pod": pod // each, "network.oversubscription": over}
    return topology.load("example-fat-tree", {**keys, **pods})


def test_the_reference_ends_with_its_last_message() -> None:
    """Not with an alarm that was set before rates rose: three messages of one NIC, one of them
    in its pod, 2 us nearer."""
    played = play_messages(messages(direct.broadcast(4), 1e6), tree(4, 2))
    sent = 3e6 / tree(4, 2).capacity(("nic-up", 0, 0))
    assert played == pytest.approx(2e-6 + sent, rel=1e-9)


def shuffled(ranks: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).permutation(ranks).tolist()


@pytest.mark.parametrize(("ranks", "nanoseconds"), PEER)
def test_a_ring_takes_what_the_peer_says(ranks: int, nanoseconds: int) -> None:
    """But for a nanosecond of rounding that the peer's clock of integers adds to every message."""
    played = play_collective(ring.all_reduce(ranks), GIB, flat(ranks)).seconds * 1e9
    assert played == pytest.approx(nanoseconds, rel=1e-4)
    assert nanoseconds - played == pytest.approx(2 * (ranks - 1) + 1, abs=0.5)


def test_a_ring_of_thousands_is_its_closed_form() -> None:
    played = play_collective(ring.all_reduce(4096), GIB, flat(4096))
    closed = ring.cost("all_reduce", 4096).time(GIB, alpha=500e-9, bandwidth=50 * GIB)
    assert played.seconds == pytest.approx(closed, rel=1e-12)
    assert played.messages == 4096 * 2 * 4095
    assert not played.contend


OFFERED = [(module, kind) for module in algorithms().values() for kind in offered(module)]


@pytest.mark.few(60)
@pytest.mark.parametrize("fold", [False, True])
@pytest.mark.parametrize("cluster", [tree(16, 4), tree(16, 8, each=8), flat(16)])
@pytest.mark.parametrize(("module", "kind"), OFFERED)
def test_arrays_say_what_the_clock_says(
    module: ModuleType, kind: CollectiveKind, cluster: Topology, fold: bool
) -> None:
    plan = getattr(module, kind)(2 if kind == "point_to_point" else 16)
    check(plan, cluster, shuffled(16), fold=fold)
    check(plan, cluster, list(range(16)), fold=fold)


def check(plan, cluster: Topology, gpus: list[int], **options) -> PlayedMessages:  # type: ignore[no-untyped-def]
    size = 1024.0**2 * plan.chunks
    played = play_collective(plan, size, cluster, gpus=gpus, overhead=1e-6, **options)
    reference = play_messages(
        messages(plan, size, lockstep=False), cluster, gpus=gpus, overhead=1e-6
    )
    assert played.seconds == pytest.approx(reference, rel=1e-9)
    return played


@pytest.mark.parametrize("seed", range(3))
def test_rounds_that_repeat_are_left_out_without_a_trace(seed: int) -> None:
    played = check(ring.all_reduce(48), tree(48, 12), shuffled(48, seed))
    assert played.contend
    assert played.instants < played.messages


@pytest.mark.parametrize("link", ["node3.nic0.up", "pod1.up", "node5.nic0"])
def test_a_slow_link_holds_back_whom_it_does(link: str) -> None:
    cluster = slowed(tree(32, 8), link, 3.0)
    check(ring.all_reduce(32), cluster, list(range(32)))
    check(ring.all_reduce(32), cluster, shuffled(32))


def test_a_slow_link_splits_what_it_touches_and_nothing_else() -> None:
    """Of ranks that all send to all: itself, its pod, the others."""
    plan, cluster = direct.all_gather(32), tree(32, 8)
    fair = play_collective(plan, GIB, cluster)
    sick = play_collective(plan, GIB, slowed(cluster, "node3.nic0", 2.0))
    assert (fair.roles, sick.roles) == (1, 3)


def test_a_late_rank_holds_back_a_ring_by_as_much() -> None:
    usual = play_collective(ring.all_reduce(64), GIB, flat(64))
    late = play_collective(ring.all_reduce(64), GIB, flat(64), late={5: 1e-3})
    assert late.seconds == pytest.approx(usual.seconds + 1e-3, rel=1e-9)


def test_ranks_need_not_be_gpus_in_their_order() -> None:
    """On a switch every order is as good as every other."""
    usual = play_collective(ring.all_reduce(32), GIB, flat(32)).seconds
    assert play_collective(ring.all_reduce(32), GIB, flat(32), gpus=shuffled(32)).seconds == (
        pytest.approx(usual, rel=1e-12)
    )


def test_more_oversubscription_is_never_quicker() -> None:
    times = [
        play_collective(
            ring.all_reduce(64), GIB, tree(64, 16, over=over), gpus=shuffled(64)
        ).seconds
        for over in (1.0, 1.5, 2.0, 4.0)
    ]
    assert times == sorted(times)
    assert times[-1] > 1.5 * times[0]
