"""What limits a step: laws of the replay, the roofline, changes that do what they say."""

import json
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from click.testing import CliRunner

from sim import kind
from sim.analysis.explanation.changes import changes
from sim.analysis.explanation.explain import explain
from sim.analysis.explanation.limits import limits, roofline
from sim.config.errors import InputError
from sim.interface.cli.main import main
from sim.kind import load
from sim.scenario.setup import from_scenario
from sim.simulate import answer
from sim.uncertainty.draws import LATENCY

SCENARIOS = ["megatron-39b", "gpt2-one-gpu", "llama2-70b-fsdp", "mixtral-8x7b"]


@pytest.mark.parametrize("name", SCENARIOS)
def test_nothing_faster_makes_a_step_longer(name: str) -> None:
    setup = from_scenario(load(name))
    found = limits(setup)
    assert found.step_time == pytest.approx(answer(setup).step_time, rel=0.01)
    for one in (*found.limits, *found.then):
        assert one.free <= one.halved * (1 + 1e-9)
        assert one.halved <= found.step_time * (1 + 1e-9)
        # Half of what a resource costs cannot gain more than all of it.
        assert found.step_time - one.halved <= found.step_time - one.free + 1e-12
    halved = [one.halved for one in found.limits]
    assert halved == sorted(halved)


def test_a_link_twice_as_fast_is_the_one_that_the_topology_would_have() -> None:
    apart = {"device.interference": 0.0}  # what kernels lose beside transfers is kept by replay
    slow = load("llama2-70b-fsdp", {"network.bandwidth": "50 Gb/s", **apart})
    fast = load("llama2-70b-fsdp", {"network.bandwidth": "100 Gb/s", **apart})
    found = limits(from_scenario(slow))
    first = found.limits[0]
    assert first.resource == "bandwidth: data communication"
    assert first.halved == pytest.approx(answer(from_scenario(fast)).step_time, rel=0.005)


def test_launches_limit_small_models_and_messages_have_a_latency() -> None:
    small = load("gpt2-one-gpu", {"plan.microbatch": 1, "model.seq": 64})
    assert limits(from_scenario(small)).limits[0].resource == "the host's launches"
    near, far = (
        limits(from_scenario(load("megatron-39b", {"network.latency": latency})))
        for latency in ("1 us", "50 ms")
    )
    assert LATENCY not in [one.resource for one in near.limits]
    (messages,) = (one for one in far.limits if one.resource == LATENCY)
    assert messages.free == pytest.approx(near.step_time, rel=0.001)


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_kernel_is_faster_than_its_roof(name: str) -> None:
    setup = from_scenario(load(name))
    kernels = roofline(setup)
    assert all(0.0 < one.of_peak <= 1.0 for one in kernels), [
        (one.name, one.of_peak) for one in kernels if not 0.0 < one.of_peak <= 1.0
    ]
    computed = [account["compute"] for account in answer(setup).stages]
    total = sum(one.seconds for one in kernels)
    assert total == pytest.approx(max(computed), rel=0.15)  # launches and interference aside


def test_a_change_is_what_running_it_gives() -> None:
    setup = from_scenario(load("megatron-1.7b"))
    result = answer(setup)
    found = changes(setup, result)
    assert found
    for one in found[:3]:
        assert one.result.fits
        assert one.step_time < result.step_time
        plan = one.result.plan
        assert plan is not None
        if one.choice in ("microbatch", "recompute", "schedule"):
            again = load("megatron-1.7b", {f"plan.{one.choice}": getattr(plan, one.choice)})
            assert answer(from_scenario(again)).step_time == pytest.approx(one.step_time)


def test_changes_are_tried_on_the_machine_as_it_is_slow_ranks_included() -> None:
    slow = "straggler=[{rank=3, factor=2.0}]"
    setup = from_scenario(load("megatron-1.7b", slow))
    (one,) = changes(setup, answer(setup))  # microbatches hide nothing of a rank that is slow
    assert one.choice == "zero"
    same = from_scenario(load("megatron-1.7b", [slow, f"plan.zero={one.after}"]))
    assert one.step_time == pytest.approx(answer(same).step_time)


def test_changes_of_a_job_that_does_not_fit_are_those_with_which_it_does() -> None:
    scenario = load("megatron-39b", {"device.memory": "40 GiB"})
    setup = from_scenario(scenario)
    result = answer(setup)
    assert not result.fits
    found = changes(setup, replace(result))
    assert found
    assert all(one.result.fits for one in found)


def test_the_command_says_what_limits_a_step() -> None:
    shown = CliRunner().invoke(main, ["explain", "megatron-1.7b"])
    assert shown.exit_code == 0, shown.output
    assert "Limited by matrix products" in shown.stdout
    answer = CliRunner().invoke(main, ["explain", "megatron-1.7b", "--json"])
    printed = json.loads(answer.stdout)
    assert printed["limits"][0]["resource"] == "matrix products"
    own = {"step_time", "limits", "then", "kernels", "changes", "lines", "fullest", "advice"}
    assert set(printed) == own | {"schema", "inputs"}


def test_a_job_without_a_step_is_refused_before_it_is_played(monkeypatch: Any) -> None:
    monkeypatch.setattr(kind, "answer", partial(pytest.fail, "a month was played"))
    with pytest.raises(InputError, match="has no step of its own"):
        explain("month-of-jobs")
