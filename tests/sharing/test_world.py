"""The machine under the workers: slow links, changes on the way, regions, unlike devices."""

import pytest

import sim
from sim.share import share
from sim.sharing.plan import Change, Group, Sharing, Wide
from tests.sharing.teams import RATE, SIZE, STEP, played


def test_a_link_at_half_rate_holds_back_its_own_worker_alone():
    options = dict(mode="async", workers=4, shards=4, steps=20)
    change = (Change(link="node1.nic0", at=0.0, factor=8.0),)
    free, held = (
        played("parameter_server", **options, **more) for more in ({}, {"change": change})
    )
    waits = [row["communication"] * held.time for row in held.workers]
    assert waits[1] > 5 * max(waits[0], waits[2], waits[3])
    assert held.straggler_seconds == pytest.approx(held.time - free.time, rel=1e-9)


def test_a_link_that_changes_on_the_way_counts_from_then_on():
    """20 pairs of S / B and a step each; from the middle on the link has half its rate."""
    one = 2 * SIZE / RATE + STEP
    change = (Change(link="node0.nic0", at=10 * one, factor=2.0),)
    outcome = played("parameter_server", mode="async", workers=1, change=change)
    assert outcome.time == pytest.approx(10 * one + 10 * (4 * SIZE / RATE + STEP), rel=1e-9)


def test_a_way_between_regions_costs_its_latency_and_its_bandwidth():
    wide = Wide(nodes=1, bandwidth=RATE / 10, latency=0.05)
    outcome = played("gossip", algorithm="random_pairs", workers=2, regions=wide)
    assert outcome.time == pytest.approx(20 * (STEP + 0.05 + 10 * SIZE / RATE), rel=1e-9)


def test_slow_workers_are_slow_in_every_method():
    group = (Group(ranks=(0,), slowdown=2.0),)
    methods = ("all_reduce", "parameter_server", "gossip", "local_sgd", "federated")
    for method in methods:
        assert played(method, group=group, steps=10).straggler_seconds > 0.3


def test_another_device_has_its_own_step():
    settings = {"sharing.group": [{"ranks": [0, 1], "device": "a100-40gb-sxm"}]}
    settings |= {"sharing.until": "3 s"}
    rows = share(sim.load("gossip-ad-psgd", settings)).workers
    assert rows[0]["steps"] > 1.2 * rows[5]["steps"]


def test_synchronised_batch_norm_costs_its_collectives():
    settings = {"sharing.steps": 5, "sharing.straggler": []}
    plain = share(sim.load("all-reduce-ddp", settings))
    synchronised = share(sim.load("all-reduce-ddp", settings | {"model.synchronised": True}))
    assert 0.001 < (synchronised.time - plain.time) / 5 < 0.02  # 106 small all-reduces a step


def test_a_node_adds_up_inside_before_anything_leaves_it():
    shared = {"sharing.steps": 3, "sharing.workers": 2}
    outcome = share(sim.load("gossip-sgp", shared))
    inside = {span.name for span in outcome.timeline.spans}
    assert "inside the node" in inside


def test_time_that_is_given_ends_the_run():
    outcome = played("parameter_server", mode="async", until=1.0)
    assert outcome.time == 1.0
    assert sum(outcome.shares.values()) == pytest.approx(1.0)


def test_plans_are_plain_data_with_defaults_of_their_method():
    assert Sharing(method="gossip").graph == "ring"
