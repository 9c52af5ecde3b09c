"""Deferred weight gradients of the output layer: no work is lost, the last stage is relieved."""

import pytest

from sim import kind
from sim.parallel.memory import memories
from sim.parallel.step import training_step
from sim.program.operations import Communicate, Segment
from sim.scenario.setup import PlanSetup, from_scenario
from sim.simulate import answer as simulate

DEFER = "plan.defer_embedding_wgrad_compute=true"
SMALL = (
    *("model.layers=8", "gpus=8", "stack=megatron-core", "plan.tp=2", "plan.pp=4", "plan.dp=1"),
    *(
        "plan.schedule=1f1b",
        "plan.interleave=1",
        "plan.global_batch=8",
        "plan.sequence_parallel=true",
    ),
)


def setup(*settings: str) -> PlanSetup:
    return from_scenario(kind.load("gpt3-175b-megatron", (*SMALL, *settings)))


def test_operands_wait_on_the_last_stage_until_all_passes_are_done() -> None:
    plain, deferred = setup(), setup(DEFER)
    held = deferred.job.plan.microbatches * deferred.job.block("head").held
    usual, longer = (memories(one.job, training_step(one.job)) for one in (plain, deferred))
    assert usual[0].reserved == longer[0].reserved, "another stage"
    assert usual[-1].reserved < longer[-1].reserved <= usual[-1].reserved + held


def test_a_last_stage_that_is_waited_for_is_relieved_of_it() -> None:
    """With as many words as that the head sets the pace; its weight gradients then run while the
    others drain, all but those that take longer."""
    wide = "model.vocab=512000"
    before, after = (simulate(setup(wide, *own)).step_time for own in ((), (DEFER,)))
    weights = setup(wide).job.work("head", "W").flat()
    product = sum(item.device for item in weights if isinstance(item, Segment))
    assert 0 < before - after <= 8 * product * (1 + 1e-9)


def test_gradients_of_the_head_are_summed_behind_it() -> None:
    replicated = ("plan.dp=2", "gpus=16", "plan.global_batch=16")
    stages = [training_step(setup(*replicated, *own).job).stages[-1] for own in ((), (DEFER,))]
    sent = []
    for stage in stages:
        operations = [op for r in stage.ops_by_variant.values() for op in r] + [*stage.closing]
        calls = [c for op in operations if isinstance(op, Communicate) for c in op.calls]
        sent.append(sum(call.bytes for call in calls if "gradients" in call.name))
    assert sent[0] == pytest.approx(sent[1]), "the same bytes"
    names = [op.name for op in stages[1].closing]
    assert names[:2] == ["deferred weights", "reduce deferred"]


def test_ends_may_count_as_layers_of_an_even_split() -> None:
    """Megatron-Core, get_num_layers_to_build: 6 layers and both ends on four stages."""
    both = [f"plan.account_for_{end}_in_pipeline_split=true" for end in ("embedding", "loss")]
    job = setup("model.layers=6", *both).job
    assert [own[0].layers for own in job.chunks] == [1, 2, 2, 1]
    one = setup("model.layers=7", both[1]).job
    assert [own[0].layers for own in one.chunks] == [2, 2, 2, 1]


def test_gradients_in_bf16_take_half_the_bytes_of_buffers_and_of_sums() -> None:
    halves = [setup(f"plan.grad_reduce_in_fp32={on}").job for on in ("true", "false")]
    assert [job.stack.fusion.gradients for job in halves] == ["fused", "fused-buffer"]
    assert [job.stack.reduced_bytes("bf16") for job in halves] == [4, 2]
    assert setup().job.stack == halves[0].stack, "Megatron-Core's own way"
