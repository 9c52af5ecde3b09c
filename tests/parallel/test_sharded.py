"""FSDP: weights come in time, gradients leave in time, and both are paid for."""

from dataclasses import replace

import pytest

from sim.engine.fold import fold
from sim.parallel.step import training_step
from sim.program import Communicate, Compute
from sim.scenario import load
from sim.setup import from_scenario
from sim.simulate import simulate


def scenario(zero: int, **plan: object):
    """GPT 1.7B, two microbatches a replica, on two nodes."""
    base = load("megatron-1.7b")
    settings = {"zero": zero, "dp": None, "global_batch": 64, "microbatch": 2} | plan
    return replace(base, gpus=16, stack="llm-foundry-fsdp", plan=replace(base.plan, **settings))


def operations(zero: int):
    return training_step(from_scenario(scenario(zero)).job).stages[0]


def calls(zero: int, kind: str):
    found = (op for op in operations(zero) if isinstance(op, Communicate))
    return [call for op in found for call in op.calls if call.kind == kind and call.bytes > 4]


def test_stage_three_gathers_weights_twice_and_scatters_gradients_once_a_microbatch():
    parameters = from_scenario(scenario(3)).job.parameters
    job = from_scenario(scenario(3)).job
    count = sum(parameters(chunk) for chunk in job.chunks[0])
    width = job.stack.weight_bytes(job.plan.precision)
    gathered = sum(call.bytes for call in calls(3, "all_gather"))
    scattered = sum(call.bytes for call in calls(3, "reduce_scatter"))
    microbatches = job.plan.microbatches
    assert gathered == pytest.approx(2 * microbatches * count * width)
    assert scattered == pytest.approx(microbatches * count * width)


def test_stage_two_scatters_gradients_only():
    assert len(calls(2, "reduce_scatter")) == len(calls(3, "reduce_scatter"))
    # What stage two gathers are the updated weights, once a step.
    assert len(calls(2, "all_gather")) <= 1 < len(calls(3, "all_gather"))


def test_no_layer_computes_before_its_weights_are_there():
    done: set[str] = set()
    for operation in operations(3):
        if isinstance(operation, Compute) and operation.phase in ("F", "B"):
            assert set(operation.after) <= done
            assert any(name.startswith("weights") for name in operation.after)
        done.add(operation.name)


def test_at_most_two_layers_are_whole_at_once():
    weights = 0
    for operation in operations(3):
        if isinstance(operation, Communicate) and operation.name.startswith("weights"):
            weights += 1
        elif isinstance(operation, Compute) and operation.phase in ("F", "B"):
            weights -= 1
        assert weights <= 2


def test_sharding_trades_memory_for_communication():
    plain, sharded = simulate(scenario(0)), simulate(scenario(3))
    state = ("weights", "gradients", "optimizer")
    assert sum(sharded.memory_per_gpu[key] for key in state) == pytest.approx(
        sum(plain.memory_per_gpu[key] for key in state) / 16
    )
    slow = {"network.bandwidth": "10 Gb/s"}
    slow_plain = simulate(replace(scenario(0), change=slow)).step_time
    slow_sharded = simulate(replace(scenario(3), change=slow)).step_time
    assert slow_sharded > 1.5 * slow_plain


@pytest.mark.parametrize("zero", [2, 3])
@pytest.mark.parametrize("pp", [1, 2])
def test_folded_equals_unfolded(zero, pp):
    setup = from_scenario(scenario(zero, pp=pp))
    assert len(fold(training_step(setup.job), setup.machine).parts) == pp
    folded = simulate(scenario(zero, pp=pp))
    unfolded = simulate(scenario(zero, pp=pp), unfold=True)
    assert folded.step_time == pytest.approx(unfolded.step_time, rel=1e-9)
    assert sum(folded.breakdown.values()) == pytest.approx(folded.step_time, rel=1e-9)
