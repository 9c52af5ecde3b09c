"""ZeRO-1 as nanotron does it: one all-reduce behind the passes, weights gathered by lists."""

from dataclasses import replace

import pytest

from sim.model.counts import parameters
from sim.parallel.job import Job, Known
from sim.parallel.plan import Plan
from sim.parallel.step import training_step
from sim.program.operations import Collective, Communicate, Compute, Segment
from sim.scenario.scenario import Scenario
from sim.scenario.setup import from_scenario


def job(zero: int, dp: int = 16, **stack) -> Job:
    plan = Plan(dp=dp, global_batch=2 * dp, microbatch=1, zero=zero)
    scenario = Scenario(
        name="s", model="llama2-7b", topology="h100-p5-efa", stack="nanotron", plan=plan
    )
    own = from_scenario(scenario).job
    return replace(own, stack=replace(own.stack, **stack), known=Known())


def sums(operations) -> list[Collective]:
    issued = (call for one in operations if isinstance(one, Communicate) for call in one.calls)
    return [one for one in issued if isinstance(one, Collective) and "gradients" in one.name]


@pytest.mark.parametrize(("zero", "behind"), [(0, 0), (1, 1)])
def test_sharded_states_are_reduced_in_one_call_behind_the_passes(zero: int, behind: int):
    own = job(zero)
    (stage,) = training_step(own).stages
    assert len(sums(stage.closing)) == behind
    passes = sum(len(sums(ops)) for ops in stage.ops_by_variant.values())
    assert (passes > own.model.layers) == (zero == 0)
    if behind:
        (call,) = sums(stage.closing)
        count = sum(own.parameters(own.chunks[0]).values())
        assert (call.kind, call.bytes) == ("all_reduce", pytest.approx(4.0 * count))


@pytest.mark.parametrize("dp", [2, 64])
def test_gathered_lists_are_copied_rank_by_rank_and_tensor_by_tensor(dp: int):
    own = job(1, dp)
    (stage,) = training_step(own).stages
    copies = [one for one in stage.closing if isinstance(one, Compute)][-1]
    (segment,) = copies.work.flat()
    assert isinstance(segment, Segment)
    tensors = 32 * own.model.tensors_of_a_layer + 2
    assert segment.host == pytest.approx(dp * (tensors + 2) * own.stack.optimizer_launch)
    assert segment.device > 3 * 2 * 2 * parameters(own.model) / own.device.memory_bandwidth
    assert copies.sync


def test_nothing_is_copied_where_weights_are_gathered_in_place():
    allocator = replace(job(1).stack.allocator, gather_copies=False)
    (stage,) = training_step(job(1, allocator=allocator)).stages
    assert [one.name for one in stage.closing if isinstance(one, Compute)] == ["optimizer"]
