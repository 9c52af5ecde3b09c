"""Hosts that compare what they call before each collective lose time; their devices do not."""

from dataclasses import replace

import pytest

from sim.config.errors import InputError
from sim.hardware.cluster import topology as topologies
from sim.parallel.job import Known
from sim.parallel.plan import Plan
from sim.program.operations import Checks, Collective, Segment
from sim.scenario.scenario import Scenario
from sim.scenario.setup import from_scenario
from sim.simulate import answer

CHECKS = Checks(node=2e-4, network=3e-4)


def setup(*, checks=CHECKS, microbatch=1, **plan):
    given = {"tp": 8, "dp": 2, "global_batch": 4 * microbatch, "microbatch": microbatch, **plan}
    given.setdefault("sequence_parallel", given["tp"] > 1)
    scenario = Scenario(
        name="s", model="llama2-7b", topology="h100-p5-efa", stack="nanotron", plan=Plan(**given)
    )
    own = from_scenario(scenario)
    return replace(own, job=replace(own.job, checks=checks, known=Known()))


def host(job, kind: str, action: str) -> float:
    return sum(one.host for one in job.work(kind, action).flat() if isinstance(one, Segment))


def calls(job, kind: str, action: str) -> list[Collective]:
    items = list(job.work(kind, action).flat())
    beside = [call for one in items if isinstance(one, Segment) for call in one.beside]
    return beside + [one for one in items if isinstance(one, Collective)]


@pytest.mark.parametrize("action", ["F", "B"])
def test_each_collective_of_a_layer_costs_the_host_a_share_for_every_rank_of_its_group(action):
    checked, usual = setup().job, setup(checks=None).job
    late = host(checked, "dense", action) - host(usual, "dense", action)
    assert late == pytest.approx(len(calls(usual, "dense", action)) * 8 * CHECKS.node)
    assert len(calls(usual, "dense", action)) == (4 if action == "F" else 6)


def call(*axes: str) -> Collective:
    return Collective(kind="all_reduce", axes=axes, bytes=8.0, name="c", cause="data communication")


def test_ranks_on_other_nodes_than_the_first_cost_what_the_network_takes():
    job = setup(tp=4, dp=8, global_batch=32).job  # two groups of four to a node
    assert job.checked(call("tp")) == pytest.approx(4 * CHECKS.node)
    assert job.checked(call("dp")) == pytest.approx(2 * CHECKS.node + 6 * CHECKS.network)
    assert job.checked(call("tp", "dp")) == pytest.approx(8 * CHECKS.node + 24 * CHECKS.network)
    assert job.checked(call("pp")) == 0.0  # of one rank
    assert job.checked(replace(call("tp"), times=3)) == pytest.approx(12 * CHECKS.node)


def test_a_device_that_is_busy_longer_than_its_host_is_checked_loses_nothing():
    small, large = ({"microbatch": n, "dp": 1, "global_batch": 16 * n} for n in (1, 16))
    lost = [
        answer(setup(**plan)).step_time - answer(setup(checks=None, **plan)).step_time
        for plan in (small, large)
    ]
    assert lost[0] > 16 * 32 * 10 * 8 * CHECKS.node * 0.5
    assert lost[1] < 0.1 * lost[0]


def test_gradients_are_checked_bucket_by_bucket_with_ddp_and_once_with_sharded_states():
    def lost(zero: int) -> float:
        plan = {"tp": 1, "dp": 64, "global_batch": 64, "zero": zero}
        return answer(setup(**plan)).step_time - answer(setup(checks=None, **plan)).step_time

    one = 8 * CHECKS.node + 56 * CHECKS.network
    assert lost(0) > 64 * one  # two matrices of a layer fill a bucket of 25 MiB each, or more
    assert lost(1) < 5 * one


def test_the_topology_says_whether_hosts_check():
    plan = Plan(tp=8, dp=2, global_batch=4, microbatch=1)
    for name, checks in (("h100-p5-efa", False), ("h100-p5-efa-checked", True)):
        scenario = Scenario(name="s", model="llama2-7b", topology=name, stack="nanotron", plan=plan)
        assert (from_scenario(scenario).job.checks is not None) == checks


@pytest.mark.parametrize("key", ["node", "network"])
def test_checks_that_take_no_time_are_refused(key):
    with pytest.raises(InputError, match=f"checks.{key} must be positive"):
        topologies.load("h100-p5-efa-checked", {f"checks.{key}": "0 s"})
