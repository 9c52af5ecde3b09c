"""HFU counts what kernels execute, MFU what publications count of a model."""

from dataclasses import replace

import pytest

from sim.kind import load
from sim.model.counts import model_flops
from sim.results.assemble import executed_flops
from sim.scenario.setup import from_scenario


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
