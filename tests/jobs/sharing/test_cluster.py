"""The machine under the workers: slow links, changes on the way, regions, unlike devices."""

import numpy as np
import pytest

import sim
from sim import run
from sim.config.errors import InputError
from sim.engine.live_cluster import LiveCluster
from sim.engine.routes import Regions
from sim.jobs.sharing.loading import from_scenario
from sim.jobs.sharing.methods.gossip import Gossip
from sim.jobs.sharing.slowdowns import SlowLinks
from sim.jobs.sharing.tables import Fault, LinkChange, StragglerCause, WorkerGroup
from sim.jobs.sharing.workload import TimedLayer
from sim.kind import described
from sim.variability.laws import Constant, Lognormal, OnOff, Pareto, Pauses, ShiftedExponential
from tests.jobs.sharing.pools import RATE, SIZE, STEP, hosts, outcome, trained, work


def test_a_link_at_half_rate_holds_back_its_own_worker_alone():
    options = dict(mode="async", workers=4, shards=4, steps=20)
    change = (LinkChange(link="node1.nic0", at=0.0, factor=8.0),)
    free, held = (
        outcome("parameter_server", **options, **more) for more in ({}, {"change": change})
    )
    waits = [row["communication"] * held.time / row["steps"] for row in held.workers]
    assert waits[1] > 5 * max(waits[0], waits[2], waits[3])
    assert held.straggler_seconds == pytest.approx(held.time - free.time, rel=1e-9)


def test_a_link_that_changes_on_the_way_counts_from_then_on():
    """20 pairs of S / B and a step each; from the middle on the link has half its rate."""
    step = 2 * SIZE / RATE + STEP
    change = (LinkChange(link="node0.nic0", at=10 * step, factor=2.0),)
    result = outcome("parameter_server", mode="async", workers=1, change=change)
    assert result.time == pytest.approx(10 * step + 10 * (4 * SIZE / RATE + STEP), rel=1e-9)


def test_a_message_between_regions_costs_its_latency_and_its_bandwidth():
    wide = Regions(nodes=1, bandwidth=RATE / 10, latency=0.05)
    result = outcome("gossip", algorithm="random_pairs", workers=2, regions=wide)
    assert result.time == pytest.approx(20 * (STEP + 0.05 + 10 * SIZE / RATE), rel=1e-9)


def test_slow_workers_are_slow_in_every_method():
    group = (WorkerGroup(ranks=(0,), slowdown=2.0),)
    methods = (
        "all_reduce",
        "data_parallel",
        "parameter_server",
        "gossip",
        "local_sgd",
        "async_local_sgd",
        "federated",
    )
    for method in methods:
        result = outcome(method, group=group, steps=10)
        spans = [s for s in result.timeline.spans if s.args.get("phase") == "F"]
        slow, usual = (next(s.end - s.start for s in spans if s.role == rank) for rank in (0, 1))
        assert slow == pytest.approx(2 * usual, rel=1e-9), method
        assert result.straggler_seconds != 0.0, method


def test_another_device_has_its_own_step():
    settings = {"sharing.group": [{"ranks": [0, 1], "device": "a100-40gb-sxm"}]}
    settings |= {"sharing.until": "3 s"}
    rows = run(sim.load("gossip-ad-psgd", settings)).workers
    assert rows[0]["steps"] > 1.2 * rows[5]["steps"]


def test_a_cpu_among_gpus_is_slow_and_holds_back_only_those_who_wait_for_it():
    cpu = {"sharing.group": [{"ranks": [7], "device": "cpu", "stack": "pytorch-cpu"}]}
    free = run(sim.load("gossip-ad-psgd", cpu))
    steps = [row["steps"] for row in free.workers]
    assert 1 <= steps[7] < steps[0] / 20
    held = run(sim.load("ps-ssp", cpu | {"sharing.until": "20 s", "sharing.straggler": []}))
    assert max(row["steps"] for row in held.workers) <= held.workers[7]["steps"] + 4  # bound 3


@pytest.mark.parametrize(
    ("sharing", "waits"),
    [
        ({"method": "all_reduce"}, True),
        ({"method": "local_sgd", "period": 2}, True),
        ({"method": "parameter_server", "mode": "ssp"}, True),
        ({"method": "federated"}, True),
        ({"method": "parameter_server", "mode": "async"}, False),
        ({"method": "gossip", "algorithm": "ad_psgd", "graph": "complete"}, False),
        ({"method": "hogwild"}, False),
    ],
)
def test_only_workers_that_wait_go_at_the_pace_of_the_slowest_of_all_boards(sharing, waits):
    def step(workers: int) -> float:
        job = {"model": "resnet50", "topology": "dgx-a100-hdr", "stack": "pytorch-ddp"}
        table = {**sharing, "workers": workers, "precision": "bf16"}
        return from_scenario(described({**job, "sharing": table})).workloads[0].seconds

    few, many = step(2), step(8)
    assert (few < many) if waits else (few == many)


def test_boards_of_nodes_that_are_not_full_hold_nobody_up():
    def step(**gpus: int) -> float:
        job = {"model": "resnet50", "topology": "dgx-a100-hdr", "stack": "pytorch-ddp", **gpus}
        table = {"method": "all_reduce", "workers": 9, "precision": "bf16"}
        return from_scenario(described({**job, "sharing": table})).workloads[0].seconds

    assert step() == step(gpus=16) == step(gpus=64)


def test_another_stack_has_its_own_step():
    """A stack that launches for nothing spares a small batch the host's time."""
    group = [{"ranks": [0], "stack": "pytorch-cpu"}]
    settings = {"sharing.group": group, "sharing.batch": 1, "sharing.until": "2 s"}
    first, *_, last = run(sim.load("gossip-ad-psgd", settings)).workers
    assert first["steps"] > 1.2 * last["steps"]


def test_a_device_without_its_measured_times_is_refused():
    settings = {"sharing.group": [{"ranks": [0], "device": "a100-40gb-sxm"}]}
    with pytest.raises(InputError, match="give a slowdown"):
        run(sim.load("federated", settings))


def test_synchronised_batch_norm_costs_its_collectives():
    settings = {"sharing.steps": 5, "sharing.straggler": []}
    plain = run(sim.load("all-reduce-ddp", settings))
    synchronised = run(sim.load("all-reduce-ddp", settings | {"model.synchronised": True}))
    assert 0.001 < (synchronised.time - plain.time) / 5 < 0.02  # 106 small all-reduces a step


def test_a_node_adds_up_inside_before_anything_leaves_it():
    shared = {"sharing.steps": 3, "sharing.workers": 2}
    outcome = run(sim.load("gossip-sgp", shared))
    inside = {span.name for span in outcome.timeline.spans}
    assert "inside the node" in inside


def test_time_that_is_given_ends_the_run():
    result = outcome("parameter_server", mode="async", until=1.0)
    assert result.time == 1.0
    assert sum(result.shares.values()) == pytest.approx(1.0)


def test_what_a_worker_is_at_when_the_time_is_over_counts():
    result = outcome("local_sgd", period=100, until=0.55 * STEP)
    assert {row["compute"] for row in result.workers} == {1.0}


def test_plans_are_plain_data_with_defaults_of_their_method():
    assert Gossip().graph == "ring"


IDLE = TimedLayer(forward=0.0, backward=0.0, parameters=SIZE / 4)
LAWS = [
    Constant(factor=3.0),
    Lognormal(sigma=0.5),
    ShiftedExponential(extra=1.0),
    Pareto(alpha=3.0),
    OnOff(factor=4.0, slow=2.0, well=2.0),
    Pauses(factor=9.0, every=3),
]


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_a_link_slows_by_every_law(law):
    """One worker's messages end when the integral of its link's rate is their bytes."""
    slow = StragglerCause(law=law, links=("node0.nic0",), interval=0.05)
    options = dict(mode="async", workers=1, steps=60, workload=work(layers=(IDLE,)))
    held = outcome("parameter_server", straggler=(slow,), **options)
    factors = SlowLinks(slow, LiveCluster(hosts()), seed=0, number=0).factors[:, 0]
    carried = np.cumsum(0.05 * RATE / factors)
    full = int(np.searchsorted(carried, 120 * SIZE))
    rest = 120 * SIZE - (carried[full - 1] if full else 0.0)
    assert held.time == pytest.approx(0.05 * full + rest * factors[full] / RATE, rel=1e-9)
    assert held.straggler_seconds == pytest.approx(held.time - 120 * SIZE / RATE, rel=1e-9)
    assert all(link["busy"] <= 1.0 for link in held.links)


def test_a_link_at_half_rate_by_law_is_one_at_half_rate_by_change():
    slow = StragglerCause(law=Constant(factor=2.0), links=("node0.nic0",), interval=0.07)
    change = LinkChange(link="node0.nic0", at=0.0, factor=2.0)
    options = dict(mode="async", workers=2, straggler=(), steps=10)
    by_law = outcome("parameter_server", **options | {"straggler": (slow,)})
    by_change = outcome("parameter_server", change=(change,), **options)
    assert by_law.time == pytest.approx(by_change.time, rel=1e-9)


def test_causes_of_a_slow_link_multiply():
    slow = StragglerCause(law=Constant(factor=2.0), links=("node0.nic0",))
    change = (LinkChange(link="node0.nic0", at=0.0, factor=3.0),)
    result = outcome("parameter_server", mode="async", workers=1, straggler=(slow,), change=change)
    assert result.time == pytest.approx(20 * (STEP + 6 * 2 * SIZE / RATE), rel=1e-9)


def test_a_regions_link_can_be_slow():
    wide = Regions(nodes=1, bandwidth=RATE / 10, latency=0.0)
    change = (LinkChange(link="region1", at=0.0, factor=2.0),)
    options = dict(algorithm="random_pairs", workers=2, regions=wide)
    result = outcome("gossip", change=change, **options)
    assert result.time == pytest.approx(20 * (STEP + 20 * SIZE / RATE), rel=1e-9)
    with pytest.raises(InputError, match="there are regions 0 to 1"):
        outcome("gossip", change=(LinkChange(link="region2.up", at=0.0, factor=2.0),), **options)


def test_a_law_of_links_does_not_keep_a_run_alive():
    slow = StragglerCause(
        law=Lognormal(sigma=0.1), links=("node0.nic0", "node1.nic0"), interval=1e-3
    )
    faults = (Fault(rank=0, at=0.05), Fault(rank=1, at=0.05))
    assert outcome("all_reduce", workers=2, straggler=(slow,), fault=faults).time < 0.2


def test_nodes_that_reduce_all_together_do_not_reduce_inside_before():
    sharing = {"method": "all_reduce", "worker": "node", "workers": 2, "steps": 3}
    result = run(sim.load("local-sgd", {"sharing": sharing}))
    assert "inside the node" not in {span.name for span in result.timeline.spans}


def test_one_that_never_returns_leaves_when_it_fails():
    pool = trained("parameter_server", mode="async", fault=(Fault(rank=1, at=0.55),))
    assert pool.workers[1].ended == pytest.approx(0.55)


def test_colocated_shards_spread_over_the_nodes():
    """Two of four workers' shards on two nodes: as many bytes enter and leave either."""
    keys = {"sharing.workers": 16, "sharing.servers": "colocated", "sharing.steps": 3}
    setup = from_scenario(sim.load("ps-async", {**keys, "sharing.shards": 2}))
    nodes = {setup.machine.topology.node_of(host.first) for host in setup.servers}
    assert nodes == {0, 1}
    four = from_scenario(sim.load("ps-async", {**keys, "sharing.shards": 4}))
    assert [host.first for host in four.servers] == [0, 4, 8, 12]


def test_what_a_worker_is_is_said():
    keys = {"sharing.workers": 2, "sharing.steps": 2, "sharing.straggler": []}
    for worker, said in (("gpu", "one GPU"), ("node", "one node of 8 GPUs"), (4, "4 GPUs")):
        result = run(sim.load("ps-async", {**keys, "sharing.worker": worker}))
        assert result.worker == said
        assert str(result).splitlines()[0].endswith(f"2 workers of {said}")
    assert result.samples == 2 * 2 * 4 * 32


FAR = Regions(nodes=1, bandwidth=RATE / 100, latency=0.0)
ROUNDS = {"period": 4, "steps": 24, "regions": FAR}


def test_servers_are_in_the_regions_of_the_workers_and_not_behind_a_link_of_their_own():
    one = outcome("async_local_sgd", **ROUNDS)
    regions = {
        link["link"].split(".")[0] for link in one.links if link["link"].startswith("region")
    }
    assert regions == {f"region{n}" for n in range(4)}
    near, *others = (row["communication"] for row in one.workers)
    assert near < 0.5 * min(others)
    (warning,) = [one for one in one.warnings if "regions" in one]
    assert warning.startswith("servers are in 1 of 4 regions: some workers communicate for")


def test_with_a_shard_for_each_region_all_workers_are_alike():
    spread = outcome("async_local_sgd", shards=4, **ROUNDS)
    shares = [row["communication"] for row in spread.workers]
    assert max(shares) == pytest.approx(min(shares), abs=0.02)
    assert not any("regions" in warning for warning in spread.warnings)


def test_rounds_that_the_end_cuts_off_are_told():
    """Of four workers whose rounds have ten steps each, 40 samples are over after one each; the
    slowest of them has done less than that of its second."""
    slow = StragglerCause(law=Constant(factor=1.9), ranks=(0,))
    cut = outcome("async_local_sgd", period=10, steps=10, straggler=(slow,))
    (warning,) = [one for one in cut.warnings if "had not ended" in one]
    done = sum(row["steps"] for row in cut.workers)
    assert warning.startswith(f"{1 - cut.samples / done:.0%} of the computed samples belong")
    whole = outcome("async_local_sgd", period=1, steps=100)
    assert not any("had not ended" in one for one in whole.warnings)
