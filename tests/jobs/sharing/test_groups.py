"""A worker is any group: laid out by a plan inside, sharing updates outside."""

import pytest

import sim
from sim import run
from sim.config.errors import InputError
from sim.jobs.sharing.loading import from_scenario
from sim.jobs.sharing.outcome import Outcome
from sim.jobs.sharing.run import build

SMALL = {"model": "gpt2-124m", "sharing.steps": 4, "sharing.period": 2, "plan.recompute": "none"}
TP_PP = {**SMALL, "plan.tp": 2, "plan.pp": 4, "plan.dp": 2, "plan.zero": 0, "plan.global_batch": 16}


def ran(**settings: object) -> Outcome:
    return run(sim.load("diloco-70b", {**TP_PP, "sharing.regions": None, **settings}))


def alone() -> sim.Result:
    """The job of one worker, as `sim run` plays it."""
    scenario = sim.load("diloco-70b", TP_PP)
    keys = {f"plan.{key}": getattr(scenario.plan, key) for key in ("tp", "pp", "dp", "zero")}
    keys |= {"plan.global_batch": 16, "plan.microbatch": 1, "plan.precision": "bf16"}
    keys |= {"plan.recompute": "none", "plan.reshard": True, "plan.no_sync": False}
    settings = {"model": "gpt2-124m", "gpus": 16, "plan.dp_replicate": 1, **keys}
    return sim.run(sim.load("llama2-70b-fsdp", settings))


def test_the_inner_step_is_that_of_a_job_with_this_plan():
    inner, job = ran(**{"sharing.workers": 1}), alone()  # of as many boards
    assert sum(inner.step.values()) == pytest.approx(job.step_time, rel=1e-9)
    assert inner.step == pytest.approx(job.breakdown, rel=1e-9)
    (held,) = inner.memory
    own = {k: v for k, v in held["parts"].items() if k != "outer state"}
    assert sum(own.values()) == pytest.approx(job.memory_per_gpu["total"], rel=1e-9)
    assert held["parts"]["outer state"] == pytest.approx(2 * 4 * job.parameters / 16, rel=1e-9)


def test_a_run_is_its_steps_and_its_outer_steps():
    one, four = ran(**{"sharing.workers": 1}), ran()
    inner = sum(one.step.values())
    assert one.time >= 4 * inner
    assert one.time == pytest.approx(4 * inner, rel=0.05)
    assert four.time - 4 * inner == pytest.approx(
        four.shares["communication"] * four.time, rel=0.02
    )


def test_every_gpu_shares_its_piece_with_its_peers():
    """2 (n-1)/n S of pieces leave a worker of two nodes; one ring through all eight nodes would
    take 2 x 7/8 S through each of the two."""
    outcome = ran()
    scenario = sim.load("diloco-70b", {**TP_PP, "sharing.regions": None})
    pool = build(from_scenario(scenario))
    scenario.sharing.start(pool)
    pool.run()
    up = [size for name, size in pool.cluster.carried().items() if ".nic" in name and ".up" in name]
    size = pool.workers[0].workload.bytes
    rounds = outcome.updates
    assert rounds == 2
    sent = sum(up) / 4 / rounds
    assert sent == pytest.approx(2 * 3 / 4 * size, rel=1e-6)


def test_four_sites_are_as_slow_as_the_links_between_them():
    """2 (R-1)/R S over every site's link for each outer step, and the library's flags."""
    narrow, wide = (
        run(sim.load("diloco-70b", {"sharing.regions.bandwidth": bandwidth}))
        for bandwidth in ("10 Gb/s", "1000 Gb/s")
    )
    size = 4.0 * 68.98e9  # outer gradients are fp32
    outer = 2 * 3 / 4 * size / 1.25e9
    assert narrow.time - wide.time == pytest.approx(1.08 * 2 * 0.99 * outer, rel=0.05)
    assert narrow.fits


def test_asynchronous_groups_do_not_wait_for_a_slow_site():
    slow = [{"kind": "constant", "factor": 3.0, "ranks": [0]}]
    keys = {"method": "async_local_sgd", "period": 2, "workers": 4, "steps": 8, "straggler": slow}
    asynchronous = run(sim.load("diloco-70b", {**TP_PP, "sharing": keys}))
    keys["method"] = "local_sgd"
    together = run(sim.load("diloco-70b", {**TP_PP, "sharing": keys}))
    assert asynchronous.time < 0.7 * together.time
    assert asynchronous.memory[1]["name"] == "a server"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"sharing.batch": 3}, "batch is set beside .plan., which states it as global_batch"),
        ({"sharing.precision": "fp16"}, "precision is set beside .plan."),
        ({"sharing.worker": "node"}, "lays out 16 GPUs; leave worker out"),
        ({"plan.tp": 5}, "tp"),
        ({"sharing": {"method": "all_reduce", "workers": 4}}, "groups share weights, not passes"),
        ({"sharing.times": {"forward": "1 s", "backward": "1 s", "parameters": 1e6}}, "says what"),
        ({"plan.tp": 1, "plan.dp": 1, "plan.pp": 12, "plan.global_batch": 12}, "do not fill nodes"),
    ],
)
def test_what_a_group_cannot_be_is_refused(settings, said):
    with pytest.raises(InputError, match=said):
        ran(**settings)
