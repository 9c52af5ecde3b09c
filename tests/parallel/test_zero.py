"""FSDP: weights come in time, gradients leave in time, and both are paid for."""

from dataclasses import replace
from itertools import accumulate

import pytest

from sim import run
from sim.config.errors import InputError
from sim.engine.fold import Folding
from sim.engine.play import play
from sim.hardware import stack as stacks
from sim.kind import load
from sim.parallel.memory import state_of
from sim.parallel.step import training_step
from sim.parallel.weight_update import optimizer_kernels
from sim.program.operations import Collective, Communicate, Compute, Operation, Segment
from sim.program.schedule import Action
from sim.program.unrolled import operations
from sim.scenario.setup import from_scenario


def scenario(zero: int, **plan: object):
    """GPT 1.7B, two microbatches a replica, on two nodes; every block is a unit by itself."""
    base = load("megatron-1.7b")
    settings = {"zero": zero, "dp": None, "global_batch": 64, "microbatch": 2} | plan
    whole = replace(base, gpus=16, stack="llm-foundry-fsdp", plan=replace(base.plan, **settings))
    return replace(whole, change={"stack.root_unit": False})


def written(own) -> list[tuple[Operation, Action | None]]:
    """The operations of the first stage."""
    return list(operations(training_step(from_scenario(own).job), 0))


def calls(own, kind: str) -> list[Collective]:
    communications = (op for op, _ in written(own) if isinstance(op, Communicate))
    collectives = (call for op in communications for call in op.calls)
    return [
        call
        for call in collectives
        if isinstance(call, Collective) and call.kind == kind and call.bytes > 4
    ]


def volume(own, kind: str) -> float:
    """Bytes of all collectives of a kind in a step, in parameters of the model."""
    job = from_scenario(own).job
    width = job.stack.weight_bytes(job.plan.precision)
    count = sum(job.parameters(job.chunks[0]).values())
    return sum(call.bytes for call in calls(own, kind)) / (count * width)


@pytest.mark.parametrize(
    ("plan", "gathered", "scattered"),
    [
        ({}, 4, 2),  # FULL_SHARD: forward and backward, of each of two micro-steps
        ({"reshard": False}, 2, 2),  # SHARD_GRAD_OP
        ({"no_sync": True}, 4, 1),
        ({"no_sync": True, "reshard": False}, 1, 1),
        ({"axes": {"dp_hpz": 2}, "reshard": "near"}, 4, 2),
        ({"prefetch": 0}, 4, 2),
        ({"prefetch": 3}, 4, 2),
        ({"pp": 2}, 1, 1),  # of four micro-steps, by torchtitan's and torch's pipelines
        ({"pp": 2, "reshard": True}, 8, 1),
        ({"pp": 2, "reshard": True, "no_sync": False}, 8, 4),
    ],
)
def test_volumes_of_sharded_parameters_are_these_multiples_of_the_model(plan, gathered, scattered):
    own = scenario(3, **plan)
    assert volume(own, "all_gather") == pytest.approx(gathered)
    assert volume(own, "reduce_scatter") == pytest.approx(scattered)


def test_pipelines_reduce_behind_a_stages_last_pass_and_not_beside_it():
    own = written(scenario(3, pp=2))
    scatters = [
        number
        for number, (op, _) in enumerate(own)
        if isinstance(op, Communicate)
        and any(getattr(call, "kind", "") == "reduce_scatter" for call in op.calls)
    ]
    passes = [
        number for number, (op, action) in enumerate(own) if isinstance(op, Compute) and action
    ]
    assert min(scatters) > max(passes)


@pytest.mark.parametrize("stack", ["megatron-deepspeed", "deepspeed", "hf-deepspeed"])
def test_deepspeeds_pipelines_shard_no_gradients(stack):
    own = replace(scenario(2, pp=2), stack=stack)
    with pytest.raises(InputError, match=r"zero = 2 with pp = 2, which .* refuses; set zero = 1"):
        from_scenario(own)


def test_what_is_regathered_comes_once_more_for_units_that_run_again():
    # F, recomputation and backward pass of two micro-steps; embedding and head do not run again.
    own = replace(scenario(3, recompute="full"), change={"stack.regathers": True})
    job = from_scenario(own).job
    layers = sum(
        block.count for chunk in job.chunks[0] for block in job.blocks(chunk) if block.recompute
    )
    share = layers / sum(job.parameters(job.chunks[0]).values())
    assert 0.8 < share < 1.0
    plain = replace(own, change={"stack.regathers": False})
    more = volume(own, "all_gather") - volume(plain, "all_gather")
    assert more == pytest.approx(2 * share)
    assert volume(own, "reduce_scatter") == pytest.approx(volume(plain, "reduce_scatter"))
    same = replace(own, plan=replace(own.plan, recompute="none"))
    without = replace(plain, plan=replace(plain.plan, recompute="none"))
    assert volume(same, "all_gather") == pytest.approx(volume(without, "all_gather"))


@pytest.mark.parametrize(("prefetch", "hidden"), [(0, False), (1, True)])
def test_without_prefetch_nothing_that_is_gathered_or_reduced_is_hidden(prefetch, hidden):
    # A step is affine in the network's seconds a byte as long as all of them are waited for.
    own = scenario(3, prefetch=prefetch)
    fast, half, quarter = (
        run(replace(own, change={"network.bandwidth": f"{rate} Gb/s"})).step_time
        for rate in (40, 20, 10)
    )
    ratio = (quarter - half) / (half - fast)
    assert ratio > 3 if hidden else ratio == pytest.approx(2, rel=0.01)


@pytest.mark.parametrize("engine", ["clock", "replay"])
@pytest.mark.parametrize("zero", [0, 1, 3])
def test_the_host_opens_the_step_before_anything_is_launched(engine, zero):
    own = scenario(zero)
    job = from_scenario(replace(own, change=own.change | {"stack.step_host": "40 ms"})).job
    record = play(training_step(job), from_scenario(own).machine, engine=engine)
    spans = [span for span in record.timeline.spans if span.name != "open"]
    assert min(span.start for span in spans) == pytest.approx(40e-3)


def test_sharded_gradients_are_zeroed_as_shares():
    zeroed = {
        zero: sum(
            kernel.bytes
            for kernel in optimizer_kernels(from_scenario(scenario(zero)).job, 0)
            if kernel.name == "zero gradients"
        )
        for zero in (1, 2, 3)
    }
    assert zeroed[1] == pytest.approx(16 * zeroed[2])
    # ZeRO-3's are in fp32, as its shards are.
    assert zeroed[3] == 2 * zeroed[2]


def test_stage_two_scatters_gradients_only():
    assert len(calls(scenario(2), "reduce_scatter")) == len(calls(scenario(3), "reduce_scatter"))
    # What stage two gathers are the updated weights, once a step.
    assert len(calls(scenario(2), "all_gather")) <= 1 < len(calls(scenario(3), "all_gather"))


def test_backward_passes_gather_near_shares_where_there_are_any():
    own = scenario(3, axes={"dp_hpz": 2}, reshard="near")
    axes = {
        str(action)[0]: call.axes
        for op, action in written(own)
        if isinstance(op, Communicate) and op.name.split()[1:2] == ["weights"]
        for call in op.calls
    }
    assert axes == {"F": ("dp", "dp_hpz"), "B": ("dp",)}


def test_gradients_of_adapters_are_gone_behind_the_last_unit_that_has_any():
    """The embedding, the last unit of a backward pass, trains nothing and reduces nothing."""
    sharded = scenario(3, lora={"rank": 16}, offload={"parameters": 1.0})
    for curve in run(replace(sharded, change={"model.layers": 2})).memory_curves:
        assert curve.bytes[-1] == pytest.approx(curve.bytes[0], abs=64.0)


def test_the_root_unit_is_gathered_once_a_micro_step_and_reduced_last():
    own = replace(scenario(3), change={"stack.root_unit": True})
    job = from_scenario(own).job
    layer = job.block("dense").count
    share = 24 * layer / sum(job.parameters(job.chunks[0]).values())
    assert volume(own, "all_gather") == pytest.approx(4 * share + 2 * (1 - share))
    backward = [op.name for op, action in written(own) if str(action) == "B0.0"]
    assert backward[-1] == "B0.0 gradients 24"
    assert [name for name in backward if "weights" in name][-1] == "B0.0 weights 23"


def test_shares_are_summed_over_replicas_beside_the_next_scatter():
    sums = [
        op for op, _ in written(scenario(3, dp_replicate=2)) if op.name.endswith("over replicas")
    ]
    assert {op.stream for op in sums} == {"replicas"}
    assert len(sums) == 2 * 26


def test_no_layer_computes_before_its_weights_are_there():
    done: set[str] = set()
    for operation, action in written(scenario(3)):
        if isinstance(operation, Compute) and action is not None:
            assert set(operation.after) <= done
            assert any(name.startswith(f"{action} weights") for name in operation.after)
        done.add(operation.name)


@pytest.mark.parametrize("prefetch", [0, 1])
def test_units_that_are_whole_at_once_are_the_running_one_and_those_ahead(prefetch):
    # In time: weights are whole from their gathering to the end of the layer that needs them.
    setup = from_scenario(scenario(3, prefetch=prefetch))
    spans = play(training_step(setup.job), setup.machine).timeline.spans
    ends = {span.name: span.end for span in spans if span.stream == "compute"}
    whole = []
    for span in spans:
        if " weights " in span.name:
            name, number = span.name.split(" weights ")
            layer = ends.get(f"{name} layer {number}", ends[name])
            whole += [(span.args["transfers"][0][2], 1), (layer, -1)]
    alive = list(accumulate(change for _, change in sorted(whole)))
    assert max(alive) == prefetch + 1


def times(**plan: object) -> tuple[float, float]:
    """Step time and memory on a network that takes longer than the layers."""
    slow = replace(scenario(3, **plan), change={"network.bandwidth": "10 Gb/s"})
    result = run(slow)
    return result.step_time, result.memory_per_gpu["total"]


def test_gathering_ahead_hides_communication_and_takes_memory():
    (none, small), (one, middle), (three, large) = (times(prefetch=n) for n in (0, 1, 3))
    assert none > one >= three
    assert small < middle < large


def test_weights_that_stay_and_gradients_that_wait_trade_memory_for_time():
    (full, small), (kept, more) = times(), times(reshard=False)
    assert kept < full
    assert more > small
    waiting, most = times(reshard=False, no_sync=True)
    assert waiting < kept
    assert most > more


def test_sharding_trades_memory_for_communication():
    plain, sharded = run(scenario(0)), run(scenario(3))
    state = ("weights", "gradients", "optimizer")
    assert sum(sharded.memory_per_gpu[key] for key in state) == pytest.approx(
        sum(plain.memory_per_gpu[key] for key in state) / 16
    )
    slow = {"network.bandwidth": "10 Gb/s"}
    slow_plain = run(replace(scenario(0), change=slow)).step_time
    slow_sharded = run(replace(scenario(3), change=slow)).step_time
    assert slow_sharded > 1.5 * slow_plain


@pytest.mark.parametrize("zero", [2, 3])
@pytest.mark.parametrize("pp", [1, 2])
def test_folded_equals_unfolded(zero, pp):
    setup = from_scenario(scenario(zero, pp=pp))
    assert len(Folding(training_step(setup.job), setup.machine).roles) == pp
    folded = run(scenario(zero, pp=pp))
    unfolded = run(scenario(zero, pp=pp), unfold=True)
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
    assert run(slow).breakdown["data communication"] > 0
    assert run(slow).step_time < run(shown).step_time


@pytest.mark.parametrize("sharding", ["flat", "per-parameter"])
def test_copies_of_whole_units_take_the_time_of_their_bytes(sharding):
    alike = {"stack.fusion.gradients": "fused-buffer"}  # nothing else depends on the sharding
    bare = replace(scenario(3), change={**alike, "stack.sharding": "in-place"})
    own = replace(scenario(3), change={**alike, "stack.sharding": sharding})
    device = from_scenario(own).machine.topology.device
    count = sum(from_scenario(own).job.parameters(from_scenario(own).job.chunks[0]).values())
    moved = {"flat": 4 + 4, "per-parameter": 4 + 4 + 4}[sharding] * 2 * count
    gap = run(own).breakdown["compute"] - run(bare).breakdown["compute"]
    assert gap > moved / device.memory_bandwidth


def test_reductions_of_their_own_communicator_run_beside_gathers():
    slow = {"network.bandwidth": "30 Gb/s"}
    one = replace(scenario(3), change=slow)
    two = replace(one, change={**slow, "stack.reduce_stream": True})
    assert run(two).step_time < run(one).step_time


def test_layers_lose_to_the_collectives_beside_them_what_the_device_says():
    own = scenario(3)
    calm = replace(own, change={**own.change, "device.interference": 0.0})
    busy = replace(own, change={**own.change, "device.interference": 0.4})
    shown = run(busy).breakdown["data communication"]
    hidden = run(calm).breakdown["data communication"]
    assert shown > hidden
    assert run(busy).breakdown["compute"] == pytest.approx(run(calm).breakdown["compute"])


def test_clock_and_replay_agree_on_sharded_passes_whose_layers_communicate():
    own = from_scenario(scenario(3, tp=2, dp_replicate=2))
    program = training_step(own.job)
    clocked = play(program, own.machine, engine="clock")
    assert play(program, own.machine).end == pytest.approx(clocked.end, rel=1e-9)


def test_shards_of_fsdp_are_kept_in_fp32_and_stepped_without_casts():
    own = from_scenario(scenario(3)).job
    (state,) = {state_of(own, group) for group in own.parameters(own.chunks[0])}
    assert (state.weights, state.gradients, state.master, state.moments) == (4, 4, 0, 8)
    names = {kernel.name for kernel in optimizer_kernels(own, 0)}
    assert not {"cast gradients", "copy to weights"} & names


def test_fsdp_s_gradients_are_joined_divided_and_their_shares_cast_and_added_up():
    """FSDP1 in bf16: joined 2 + 2 and divided 2 + 2 whole; of a share divided 2 + 2, cast 2 + 4,
    and from the second micro-step on added, 12. No whole gradient finds an earlier one."""
    fsdp1, fsdp2 = (stacks.load(name) for name in ("llm-foundry-fsdp", "torchtitan-eager"))
    assert fsdp1.joining_bytes("bf16") == 8
    assert [fsdp1.shard_bytes("bf16", later=later) for later in (False, True)] == [10, 22]
    assert fsdp2.joining_bytes("bf16") == 2 + 4
    assert fsdp2.shard_bytes("bf16", later=False) == 0
    own = from_scenario(scenario(3)).job
    assert own.execution.later == 0.0
    own = from_scenario(scenario(3, no_sync=True)).job
    assert own.execution.later > 0.0
