"""Context parallelism: a sequence divided over ranks, keys and values round a ring."""

import pytest

import sim
from sim.kind import load
from sim.parallel.step import training_step
from sim.program.operations import Collective, Communicate
from sim.program.unrolled import operations
from sim.scenario.scenario import Scenario
from sim.scenario.setup import PlanSetup, from_scenario
from sim.simulate import answer

NAME = "llama3-8b-long-context"


def setup(*settings: str) -> PlanSetup:
    return from_scenario(load(NAME, settings))


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "settings",
    [
        (),
        ("plan.pp=2",),
        ("plan.order=tp-dp-cp-pp", "plan.tp=2"),
        ("plan.zero=3", "plan.tp=1", "plan.sequence_parallel=false", "stack=torchtitan-compile"),
        ("plan.tp=2", "plan.cp=16"),
    ],
    ids=["one node each", "pipeline", "ring over nodes", "sharded weights", "two nodes a ring"],
)
def test_folded_equals_unfolded(settings: tuple[str, ...]) -> None:
    job = setup("model.layers=2", "plan.global_batch=16", *settings)
    folded, unfolded = answer(job), answer(job, unfold=True)
    assert folded.roles < unfolded.roles == 64
    assert folded.step_time == pytest.approx(unfolded.step_time, rel=1e-9)
    assert sum(folded.breakdown.values()) == pytest.approx(folded.step_time, rel=1e-9)


def test_each_rank_does_its_share_of_the_attention() -> None:
    whole, part = (sim.run(shared_over(cp)) for cp in (4, 8))
    per_sequence = [step.breakdown["compute"] for step in (whole, part)]
    # Twice the ranks a sequence and half the replicas: the same work on every GPU.
    assert per_sequence[1] == pytest.approx(per_sequence[0], rel=0.06)  # smaller products
    assert part.memory_per_gpu["activations"] == pytest.approx(
        whole.memory_per_gpu["activations"] / 2, rel=0.05
    )


def shared_over(cp: int) -> Scenario:
    return load(NAME, {"plan.cp": cp})


@pytest.mark.parametrize(
    ("settings", "axes"), [(("plan.dp=1", "gpus=32"), ("cp",)), ((), ("cp", "dp"))]
)
def test_gradients_are_summed_over_the_ranks_of_a_sequence_too(
    settings: tuple[str, ...], axes: tuple[str, ...]
) -> None:
    job = setup(*settings).job
    calls = [
        call
        for operation, _ in operations(training_step(job), 0)
        if isinstance(operation, Communicate)
        for call in operation.calls
        if isinstance(call, Collective) and call.name == "dense gradients"
    ]
    assert calls
    assert {call.axes for call in calls} == {axes}
    assert sum(call.bytes for call in calls) == pytest.approx(
        sum(job.parameters(job.chunks[0]).values()) * job.stack.reduced_bytes("bf16")
    )


def test_a_ring_over_nodes_shows_what_it_cannot_hide() -> None:
    short = ("model.seq=8192", "plan.tp=1", "plan.sequence_parallel=false", "plan.cp=32")
    inside = answer(setup("model.seq=8192", "plan.tp=1", "plan.sequence_parallel=false"))
    outside = answer(setup(*short))
    parts = [step.breakdown for step in (inside, outside)]  # launches of small pieces take long
    share = [part["context communication"] / part["compute"] for part in parts]
    assert share[1] > 2 * share[0] > 0
