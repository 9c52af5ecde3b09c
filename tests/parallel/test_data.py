"""Gradients: cut into buckets, and summed over replicas once each, however they are sharded."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.hardware import stack as stacks
from sim.hardware.cluster import topology as topologies
from sim.model.execution import DENSE
from sim.model.transformer import Transformer
from sim.parallel.buckets import buckets
from sim.parallel.data import reduced
from sim.parallel.gathered_weights import weights_gathered
from sim.parallel.job import Job
from sim.parallel.plan import Plan
from sim.parallel.schedule import table
from sim.parallel.segments import Piece
from sim.parallel.step import training_step
from sim.program.causes import DATA
from sim.program.memory import NOTHING
from sim.program.operations import Collective, Communicate, Work
from sim.program.unrolled import operations
from sim.scenario.setup import assemble

MODEL = Transformer(
    tied_embeddings=True,
    layers=8,
    hidden=256,
    heads=4,
    ffn=1024,
    vocab=1000,
    seq=256,
    attention="flash",
)


def job(stack: str = "megatron-core", gpus: int = 16, **plan: object) -> Job:
    settings = Plan(**({"global_batch": 32, **plan}))  # type: ignore[arg-type]
    own = stacks.load(stack)
    topology = topologies.load("dgx-h100-ndr").with_gpus(gpus)
    return assemble("small", model=MODEL, stack=own, topology=topology, plan=settings).job


# --- Buckets --------------------------------------------------------------------------------------


def pieces(*counts: float) -> list[Piece]:
    block = job().block("dense")
    empty = Work(name="empty", items=())
    return [Piece(replace(block, parameters={DENSE: count}), empty, NOTHING) for count in counts]


def cut(*counts: float, first: float, size: float) -> list[list[float]]:
    return [
        [piece.block.count for piece in bucket]
        for bucket in buckets(pieces(*counts), first=first, size=size)
    ]


def test_the_first_bucket_leaves_early_and_the_last_with_what_is_left():
    assert cut(2, 2, 2, 2, 2, 2, first=1, size=4) == [[2], [2, 2], [2, 2], [2]]


def test_a_layer_leaves_in_one_bucket_however_large_it_is():
    assert cut(9, 1, 9, first=1, size=2) == [[9], [1, 9]]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=9), st.integers(1, 9), st.integers(1, 30))
def test_every_gradient_is_in_one_bucket_and_all_but_the_last_are_full(counts, first, size):
    made = cut(*counts, first=first, size=size)
    assert [count for bucket in made for count in bucket] == counts
    limits = [first, *[size] * len(made)]
    assert all(sum(bucket) >= limit for bucket, limit in zip(made[:-1], limits, strict=False))


# --- Sums -----------------------------------------------------------------------------------------


def sums(own: Job) -> list[list[tuple[str, tuple[str, ...], float]]]:
    """Kind, axes and bytes of what sums a million parameters' gradients, in rounds."""
    rounds = reduced(own, {DENSE: 1e6}, "sum", stream="data")
    return [
        [(call.kind, call.axes, call.bytes) for call in operation.calls]  # type: ignore[union-attr]
        for operation in rounds
        if isinstance(operation, Communicate)
    ]


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        ({"dp": 1, "tp": 4, "pp": 4}, []),
        ({}, [[("all_reduce", ("dp",), 2e6)]]),
        ({"zero": 1}, [[("reduce_scatter", ("dp",), 2e6)]]),
        ({"zero": 1, "cp": 2}, [[("reduce_scatter", ("cp", "dp"), 2e6)]]),
        # Hybrid sharding: each share is then summed over the replicas of the sharded group.
        (
            {"zero": 3, "dp": 4, "dp_replicate": 4},
            [[("reduce_scatter", ("dp",), 2e6)], [("all_reduce", ("dp_replicate",), 2e6 / 4)]],
        ),
        ({"dp": 4, "dp_replicate": 4}, [[("all_reduce", ("dp", "dp_replicate"), 2e6)]]),
    ],
)
def test_gradients_are_summed_over_all_who_hold_the_parameters(plan, expected):
    own = job(**plan)
    scaled = own.stack.reduced_bytes("bf16") / 2
    assert sums(own) == [
        [(kind, axes, size * scaled) for kind, axes, size in calls] for calls in expected
    ]


def test_weights_are_gathered_from_those_who_share_them():
    (call,) = weights_gathered(job(zero=3, dp=4, dp_replicate=4), {DENSE: 1e6})
    assert (call.kind, call.axes, call.bytes) == ("all_gather", ("dp",), 2e6)
    assert weights_gathered(job(dp=1, tp=4, pp=4), {DENSE: 1e6}) == ()


@pytest.mark.parametrize("name", sorted(n for n, own in table().items() if not own.versions))
@pytest.mark.parametrize("stack", ["megatron-core", "megatron-lm-2021"])
@pytest.mark.parametrize("zero", [0, 1])
def test_a_step_sums_the_gradients_of_every_parameter_once(name, stack, zero):
    chunks = table()[name].chunks or 2
    own = job(stack, 8, pp=4, dp=2, zero=zero, schedule=name, interleave=chunks)
    program, moved = training_step(own), Counter[int]()
    for stage in range(4):
        for operation, _ in operations(program, stage):
            calls = operation.calls if isinstance(operation, Communicate) else ()
            for call in calls:
                if isinstance(call, Collective) and call.name == "dense gradients":
                    assert call.cause == DATA
                    moved[stage] += call.bytes
        held = own.parameters(own.chunks[stage])[DENSE]
        assert moved[stage] == pytest.approx(held * own.stack.reduced_bytes("bf16"))


def test_owners_broadcast_their_shares_in_turn() -> None:
    """InternEvo's ZeRO-1: n broadcasts of 1/n of the weights; an all-reduce of all gradients."""
    own = job("internevo", zero=1)
    (call,) = weights_gathered(own, {DENSE: 16e6})
    assert (call.kind, call.times, call.bytes) == ("broadcast", 16, 32e6)
    kinds = {
        one.kind
        for op, _ in operations(training_step(own), 0)
        if isinstance(op, Communicate)
        for one in op.calls
        if isinstance(one, Collective)
    }
    assert kinds == {"broadcast", "all_reduce"}
