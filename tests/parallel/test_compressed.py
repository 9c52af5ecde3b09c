"""Compressed gradients: bytes of factors, of gathered messages, and what a slow network gains."""

from dataclasses import replace
from typing import Any

import pytest

from sim import run
from sim.collectives.compression import Compression
from sim.config.errors import InputError
from sim.engine.play import play
from sim.kind import load
from sim.parallel.memory import memory
from sim.parallel.step import training_step
from sim.program.operations import Collective, Communicate
from sim.program.unrolled import operations
from sim.scenario.scenario import Scenario
from sim.scenario.setup import from_scenario

STACKS = ("megatron-lm-2021", "pytorch-ddp")  # gradients behind all passes, and beside the last one


def scenario(gradients: Compression | None, stack: str = STACKS[1], **change: Any) -> Scenario:
    base = load("megatron-1.7b")
    settings = {"dp": None, "tp": 1, "global_batch": 64, "microbatch": 2, "gradients": gradients}
    plan = replace(base.plan, **settings)
    return replace(base, gpus=16, stack=stack, plan=plan, change=change)


def sums(own: Scenario) -> dict[str, float]:
    """Bytes of the collectives that sum gradients, by kind."""
    found: dict[str, float] = {}
    for op, _ in operations(training_step(from_scenario(own).job), 0):
        for call in op.calls if isinstance(op, Communicate) else ():
            if isinstance(call, Collective) and "gradients" in call.name:
                found[call.kind] = found.get(call.kind, 0.0) + call.bytes
    return found


@pytest.mark.parametrize("stack", STACKS)
def test_factors_are_those_of_every_matrix_by_itself(stack):
    job = from_scenario(scenario(None, stack)).job
    width = job.stack.reduced_bytes(job.plan.precision)
    blocks = list(job.blocks(job.chunks[0][0]))
    shapes = [one for b in blocks for own in b.matrices.values() for one in own]
    rest = sum(b.count for b in blocks) - sum(one.rows * one.columns for one in shapes)
    factors = 4 * sum(one.rows + one.columns for one in shapes)
    sent = sums(scenario(Compression(kind="powersgd", rank=4), stack))
    assert sent == {"all_reduce": pytest.approx(width * (factors + rest))}


@pytest.mark.parametrize("stack", STACKS)
def test_what_cannot_be_added_up_is_gathered_from_all_ranks(stack):
    whole = sums(scenario(None, stack))["all_reduce"]
    width = from_scenario(scenario(None, stack)).job.stack.reduced_bytes("fp16")
    sent = sums(scenario(Compression(kind="topk", ratio=0.01), stack))
    assert sent == {"all_gather": pytest.approx(16 * 0.01 * whole / width * (width + 4), rel=1e-6)}


@pytest.mark.parametrize("stack", STACKS)
def test_integers_are_added_up_in_rounds_and_cost_less_than_what_they_stand_for(stack):
    whole = sums(scenario(None, stack))["all_reduce"]
    width = from_scenario(scenario(None, stack)).job.stack.reduced_bytes("fp16")
    elements = pytest.approx(whole / width, rel=1e-6)
    sent = sums(scenario(Compression(kind="int8"), stack))
    assert sent == {"reduce_scatter": elements, "all_gather": elements}
    slow = {"network.bandwidth": "1 Gb/s"}
    plain, coded = (run(scenario(way, stack, **slow)) for way in (None, Compression(kind="int8")))
    assert coded.step_time < plain.step_time


@pytest.mark.parametrize("stack", STACKS)
def test_low_rank_pays_on_slow_networks_and_not_on_fast_ones(stack):
    slow = {"network.bandwidth": "1 Gb/s"}
    factors = Compression(kind="powersgd", rank=4)
    plain, coded = (run(scenario(way, stack, **slow)) for way in (None, factors))
    assert coded.step_time < 0.5 * plain.step_time
    assert coded.breakdown["compression"] > 0
    fast = {"network.bandwidth": "3200 Gb/s"}
    plain, coded = (run(scenario(way, stack, **fast)) for way in (None, factors))
    assert coded.step_time > plain.step_time - plain.breakdown["data communication"]


@pytest.mark.parametrize("kind", ["powersgd", "topk"])
def test_clock_and_replay_agree(kind):
    own = from_scenario(scenario(Compression(kind=kind)))
    program = training_step(own.job)
    clocked = play(program, own.machine, engine="clock").end
    assert play(program, own.machine).end == pytest.approx(clocked, rel=1e-9)


@pytest.mark.parametrize(
    ("kind", "feedback", "elements"),
    [("powersgd", True, 1), ("powersgd", False, 0), ("fp16", True, 0)],
)
@pytest.mark.parametrize("stack", STACKS)
def test_a_rank_keeps_the_error_of_every_gradient_that_it_compresses(
    kind, feedback, elements, stack
):
    own = from_scenario(scenario(Compression(kind=kind, feedback=feedback), stack))
    parts = memory(own.job, training_step(own.job), 0).parts
    count = sum(own.job.parameters(own.job.chunks[0]).values())
    width = own.job.stack.reduced_bytes(own.job.plan.precision)
    assert parts.get("compression error", 0.0) == pytest.approx(elements * count * width)


def sharded(gradients: Compression | None, **change: Any) -> Scenario:
    """Two nodes of eight: shares within a node, replicas across."""
    own = scenario(gradients, "torchtitan-eager", **change)
    plan = replace(own.plan, zero=3, dp_replicate=2, schedule="1f1b", precision="bf16")
    return replace(own, plan=plan)


def test_shares_are_scattered_whole_within_nodes_and_sent_as_factors_across_them():
    """DALL-E's layout: a share of a matrix has all columns and an eighth of the rows."""
    job = from_scenario(sharded(None)).job
    width = job.stack.reduced_bytes(job.plan.precision)
    blocks = list(job.blocks(job.chunks[0][0]))
    shapes = [one for b in blocks for own in b.matrices.values() for one in own]
    rest = sum(b.count for b in blocks) / 8 - sum(one.rows * one.columns for one in shapes) / 8
    factors = sum(one.number * 4 * (one.rows / 8 + one.columns) for one in shapes)
    plain, sent = sums(sharded(None)), sums(sharded(Compression(kind="powersgd", rank=4)))
    steps = job.plan.microbatches
    assert sent["reduce_scatter"] == pytest.approx(plain["reduce_scatter"])
    assert sent["all_reduce"] == pytest.approx(width * (factors + rest))
    assert sent["all_reduce"] < 0.05 * plain["all_reduce"] / steps


def test_factors_across_nodes_pay_where_the_network_is_slow():
    slow = {"network.bandwidth": "1 Gb/s"}
    factors = Compression(kind="powersgd", rank=4)
    plain, coded = (run(sharded(way, **slow)) for way in (None, factors))
    assert coded.step_time < 0.5 * plain.step_time
    own = run(sharded(None)).memory_per_gpu["gradients"]
    assert coded.memory_per_gpu["compression error"] == pytest.approx(own)


def test_an_encoding_of_no_kind_is_none():
    ways = (None, Compression(kind="none"))
    assert len({run(sharded(way)).step_time for way in ways}) == 1


def test_shares_of_optimizer_states_take_gradients_that_are_summed_whole():
    own = scenario(Compression(kind="powersgd", rank=4))
    assert sums(replace(own, plan=replace(own.plan, zero=1))) == sums(own)


def test_encoded_gradients_are_not_scattered():
    own = scenario(Compression(kind="fp16"))
    with pytest.raises(InputError, match="set zero = 1, or dp_replicate = 2"):
        from_scenario(replace(own, plan=replace(own.plan, zero=2)))
