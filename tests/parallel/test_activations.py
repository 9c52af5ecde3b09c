"""Activations compressed between pipeline stages."""

from dataclasses import replace

import pytest

import sim
from sim.config.errors import InputError
from sim.parallel.passes import boundary_bytes, sent_bytes
from sim.scenario.setup import from_scenario


def job(**activations: object):
    settings = {"plan.pp": 4, "plan.tp": 2, "plan.dp": 2, "gpus": 16, "plan.global_batch": 64}
    if activations:
        settings["plan.activations"] = activations
    return sim.load("megatron-3.6b", settings)


def test_what_crosses_the_boundary_shrinks_by_the_codes_share():
    whole = from_scenario(job()).job
    assert sent_bytes(whole) == boundary_bytes(whole)
    coded = from_scenario(job(kind="int8")).job
    assert sent_bytes(coded) == pytest.approx(boundary_bytes(coded) / 2, rel=1e-3)


def test_coding_takes_time_of_its_own_and_pays_on_a_slow_network():
    plain, coded = sim.run(job()), sim.run(job(kind="int8"))
    assert coded.breakdown["compression"] > 0.0
    assert sum(coded.breakdown.values()) == pytest.approx(coded.step_time, rel=1e-9)
    assert coded.step_time == pytest.approx(plain.step_time, rel=0.01)  # there it hardly matters
    slow = {"network.bandwidth": "1 Gb/s"}
    changed = [replace(one, change=slow) for one in (job(), job(kind="int8"))]
    assert sim.run(changed[1]).step_time < 0.9 * sim.run(changed[0]).step_time


def test_an_unknown_code_is_a_mistake():
    with pytest.raises(InputError, match="kind"):
        job(kind="int9")
