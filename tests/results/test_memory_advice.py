"""What does not fit into memory says by how much, what is largest and what to do."""

import dataclasses

import pytest

import sim
from sim.results.memory_advice import memory_line
from tests.results.test_text import GIB, RESULT


def test_what_does_not_fit_says_by_how_much_what_is_largest_and_what_to_do():
    asked = dataclasses.replace(RESULT, remedies=("recompute = selective", "tp = 8"))
    assert memory_line(asked) == (
        "Memory of the fullest GPU: does not fit: 93.0 GiB of 80.0 GiB; the largest part is "
        "activations; with recompute = selective or with tp = 8, it fits"
    )
    planned = dataclasses.replace(RESULT, plan=sim.Plan(global_batch=8))
    assert memory_line(planned).endswith("makes it fit; ask `sim plan`")
    assert "the script has to take less" in memory_line(RESULT)  # recorded: there is no plan


def test_what_fits_says_so_and_advises_nothing():
    line = memory_line(dataclasses.replace(RESULT, fits=True, capacity=96 * GIB))
    assert line == "Memory of the fullest GPU: 93.0 GiB of 96.0 GiB, fits"


@pytest.mark.parametrize(
    ("scenario", "settings"),
    [
        ("megatron-1.7b", {"device.memory": "20 GiB"}),
        ("megatron-39b", {"plan.tp": 4}),
        ("gpt2-one-gpu", {"plan.microbatch": 60}),
    ],
)
def test_what_is_advised_fits(scenario, settings):
    result = sim.run(sim.load(scenario, settings))
    assert not result.fits
    assert result.remedies
    for remedy in result.remedies:
        said = [f"plan.{own.replace(' = ', '=')}" for own in remedy.split(" and ")]
        job = sim.load(sim.load(scenario, settings), said)
        job = dataclasses.replace(job, plan=dataclasses.replace(job.plan, dp=None))
        gpus = dataclasses.replace(job, gpus=result.ranks)
        assert sim.run(gpus).fits, remedy


def test_what_nothing_helps_is_sent_to_the_search():
    result = sim.run(sim.load("gpt2-one-gpu", {"device.memory": "3 GiB"}))
    assert not result.remedies
