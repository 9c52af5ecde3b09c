"""FSDP: weights come in time, gradients leave in time, and both are paid for."""

from dataclasses import replace
from itertools import accumulate

import pytest

from sim.engine.fold import Folding
from sim.engine.play import play
from sim.parallel.step import training_step
from sim.program.actions import Action
from sim.program.operations import Collective, Communicate, Compute, Operation, Segment
from sim.program.written_out import operations
from sim.scenario.scenario import load
from sim.scenario.setup import from_scenario
from sim.simulate import simulate


def scenario(zero: int, **plan: object):
    """GPT 1.7B, two microbatches a replica, on two nodes."""
    base = load("megatron-1.7b")
    settings = {"zero": zero, "dp": None, "global_batch": 64, "microbatch": 2} | plan
    return replace(base, gpus=16, stack="llm-foundry-fsdp", plan=replace(base.plan, **settings))


def written(zero: int) -> list[tuple[Operation, Action | None]]:
    """The operations of the first stage."""
    return list(operations(training_step(from_scenario(scenario(zero)).job), 0))


def calls(zero: int, kind: str) -> list[Collective]:
    communications = (op for op, _ in written(zero) if isinstance(op, Communicate))
    collectives = (call for op in communications for call in op.calls)
    return [
        call
        for call in collectives
        if isinstance(call, Collective) and call.kind == kind and call.bytes > 4
    ]


def test_stage_three_gathers_weights_twice_and_scatters_gradients_once_a_microbatch():
    job = from_scenario(scenario(3)).job
    count = sum(job.parameters(job.chunks[0]).values())
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
    for operation, action in written(3):
        if isinstance(operation, Compute) and action is not None:
            assert set(operation.after) <= done
            assert any(name.startswith(f"{action} weights") for name in operation.after)
        done.add(operation.name)


def test_at_most_two_layers_are_whole_at_once():
    # In time: weights are whole from their gathering to the end of the layer that needs them.
    setup = from_scenario(scenario(3))
    spans = play(training_step(setup.job), setup.machine).timeline.spans
    ends = {span.name: span.end for span in spans if span.stream == "compute"}
    whole = []
    for span in spans:
        if " weights " in span.name:
            name, number = span.name.split(" weights ")
            layer = ends.get(f"{name} layer {number}", ends[name])
            whole += [(span.args["transfers"][0][2], 1), (layer, -1)]
    alive = list(accumulate(change for _, change in sorted(whole)))
    assert max(alive) == 2


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
    assert len(Folding(training_step(setup.job), setup.machine).roles) == pp
    folded = simulate(scenario(zero, pp=pp))
    unfolded = simulate(scenario(zero, pp=pp), unfold=True)
    assert folded.step_time == pytest.approx(unfolded.step_time, rel=1e-9)
    assert sum(folded.breakdown.values()) == pytest.approx(folded.step_time, rel=1e-9)


def seconds(zero: int, stack: str, kind: str, **changes: object) -> float:
    """Device and host seconds, and bytes of tensor collectives, of one microbatch's pass."""
    base = replace(scenario(zero, tp=2, pp=2), stack=stack, change=changes)
    program = training_step(from_scenario(base).job)
    works = [
        operation.work
        for operation, action in operations(program, 1)
        if isinstance(operation, Compute) and action == Action(kind, 1)
    ]
    items = [item for work in works for item in work.flat()]
    moved = sum(item.bytes for item in items if isinstance(item, Collective))
    segments = [item for item in items if isinstance(item, Segment)]
    moved += sum(call.bytes for segment in segments for call in segment.beside)
    return moved + sum(segment.device + segment.host for segment in segments)


@pytest.mark.parametrize("kind", ["F", "B"])
@pytest.mark.parametrize("stack", ["megatron-core", "megatron-lm-2021", "nanotron"])
def test_a_pass_costs_the_same_whole_or_in_pieces(stack, kind):
    assert seconds(0, stack, kind) == pytest.approx(seconds(2, stack, kind))
    assert seconds(2, stack, kind) == pytest.approx(seconds(3, stack, kind))


def test_weights_updated_in_the_last_step_come_before_their_layers_run():
    hidden = replace(scenario(1), stack="megatron-core")
    names = [op.name for op, _ in operations(training_step(from_scenario(hidden).job), 0)]
    assert "F0.0 weights 0" in names
    assert "F1.0 weights 0" not in names
    assert "gather weights" not in names
    slow = replace(hidden, change={"network.bandwidth": "5 Gb/s"})
    shown = replace(slow, change={**slow.change, "stack.overlap_gather": False})
    assert simulate(slow).breakdown["data communication"] > 0
    assert simulate(slow).step_time < simulate(shown).step_time
