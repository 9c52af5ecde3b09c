"""What does not fit into memory says by how much, what is largest and what to do."""

import dataclasses
from dataclasses import replace

import pytest

import sim
from sim.kind import load
from sim.model.counts import model_flops
from sim.results.assemble import executed_flops
from sim.results.memory_advice import memory_line
from sim.scenario.setup import from_scenario
from tests.results.test_text import GIB, RESULT


def test_what_does_not_fit_says_by_how_much_what_is_largest_and_what_to_do():
    asked = dataclasses.replace(RESULT, remedies=("recompute = selective", "tp = 8"))
    assert memory_line(asked) == (
        "Memory of the fullest GPU: does not fit: needs 93.0 GiB, but has 80.0 GiB; the "
        "largest part is activations; with recompute = selective or with tp = 8, it fits"
    )
    planned = dataclasses.replace(RESULT, plan=sim.Plan(global_batch=8))
    assert memory_line(planned).endswith("makes it fit; ask `sim plan`")
    assert "the script has to take less" in memory_line(RESULT)  # recorded: there is no plan


def test_what_fits_says_so_and_advises_nothing():
    line = memory_line(dataclasses.replace(RESULT, fits=True, capacity=96 * GIB))
    assert line == "Memory of the fullest GPU: 93.0 GiB of 96.0 GiB, fits with 3.00 GiB to spare"
    roomy = memory_line(dataclasses.replace(RESULT, fits=True, capacity=98 * GIB))
    assert roomy == "Memory of the fullest GPU: 93.0 GiB of 98.0 GiB, fits"


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


def counted(name: str, **plan: object) -> tuple[float, float]:
    """Executed and model FLOPs of a step of the whole job."""
    scenario = load(name)
    given = replace(scenario.plan, **plan)  # type: ignore[arg-type]
    job = from_scenario(replace(scenario, plan=given)).job
    return executed_flops(job), model_flops(job.model, job.plan.global_batch)


def test_products_that_are_all_model_flops_are_executed_as_they_are_counted() -> None:
    executed, model = counted("gpt3-175b-megatron", recompute="none")
    assert executed == pytest.approx(model)


def test_full_recomputation_executes_the_layers_forward_pass_again() -> None:
    """Narayanan et al. 2021, equation 3: 96 B s l h^2 (1 + s/6h + V/16lh), the head runs once."""
    executed, _ = counted("gpt3-175b-megatron")
    batch, seq, layers, hidden, vocab = 64, 2048, 96, 12288, 51200
    head = 1 + seq / (6 * hidden) + vocab / (16 * layers * hidden)
    assert executed == pytest.approx(96 * batch * seq * layers * hidden**2 * head)


def test_what_a_causal_mask_hides_is_not_executed() -> None:
    """Flash attention: 2 products forward, 5 backward, over (s + 1) / 2 of s keys a query."""
    executed, model = counted("llama3-8b-long-context")
    batch, seq, layers, hidden = 32, 131072, 32, 4096
    product = 2 * batch * layers * seq * seq * hidden
    others = model - 6 * product
    assert executed == pytest.approx(others + 7 * product / 2, rel=1e-4)


def test_layouts_execute_the_same_products() -> None:
    once = counted("megatron-3.6b", tp=1, pp=1, dp=None, microbatch=2)
    again = counted("megatron-3.6b", tp=2, pp=2, dp=None, microbatch=4)
    assert again[0] == pytest.approx(once[0])


def test_chunks_of_unequal_layers_are_told() -> None:
    (said,) = (
        warning
        for warning in sim.run("gpt3-175b-megatron", {"plan.interleave": 5}).warnings
        if "chunks" in warning
    )
    assert said.startswith("40 chunks of 2 to 3 layers")
    even = sim.run("gpt3-175b-megatron", {"plan.interleave": 4}).warnings
    assert not [warning for warning in even if "chunks" in warning]
