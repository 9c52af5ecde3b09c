"""Passes of two microbatches that take turns at experts."""

from typing import Any

import pytest

from sim.config.errors import InputError
from sim.engine.fold import Folding
from sim.engine.play import play
from sim.engine.replay.play import FoldedMachine
from sim.kind import load
from sim.model.kernels import Attention, Gemm, Kernel
from sim.model.operators import kernels_of
from sim.parallel.memory import memories
from sim.parallel.overlapped_passes import overlap_forward_backward
from sim.parallel.pass_turns import merged
from sim.parallel.schedule import schedule, table
from sim.parallel.step import training_step
from sim.program.causes import COMPUTE, EXPERT
from sim.program.operations import Collective, Compute, Segment
from sim.program.schedule import PassVariant
from sim.scenario.setup import PlanSetup, from_scenario
from sim.simulate import answer


def kernels(name: str, seconds: float) -> Segment:
    return Segment(name=name, cause=COMPUTE, device=seconds, lead=seconds)


def sent(name: str) -> Collective:
    return Collective(kind="all_to_all", axes=("dp",), bytes=1.0, name=name, cause=EXPERT)


def words(items: Any) -> list[str]:
    return [
        f"{item.name} | {item.beside[0].name}" if isinstance(item, Segment) and item.beside
        else item.name
        for item in items
    ]  # fmt: skip


def test_what_one_pass_sends_is_hidden_by_what_the_other_computes() -> None:
    forward = [kernels("f0", 1), sent("a0"), kernels("f1", 1), sent("a1"), kernels("f2", 1)]
    backward = [kernels("b0", 2), sent("c0"), kernels("b1", 2), sent("c1"), kernels("b2", 2)]
    first, second = merged(forward, backward)
    assert words(first) == ["f0", "b0 | a0", "f1 | c0", "b1 | a1", "f2 | c1"]
    assert words(second) == ["b2"]


def test_all_of_both_passes_is_run_once_whatever_their_lengths() -> None:
    forward = [kernels("f0", 1), sent("a0"), kernels("f1", 1)]
    backward = [kernels("b0", 2), sent("c0"), sent("c1"), kernels("b1", 2), kernels("b2", 1)]
    first, second = merged(forward, backward)
    whole = (*first, *second)
    assert sum(item.device for item in whole if isinstance(item, Segment)) == 7
    calls = [item for item in whole if isinstance(item, Collective)]
    calls += [call for item in whole if isinstance(item, Segment) for call in item.beside]
    assert sorted(call.name for call in calls) == ["a0", "c0", "c1"]


@pytest.mark.parametrize("name", sorted(set(table()) - {"naive"}))
@pytest.mark.parametrize("stages", [2, 4, 8])
def test_one_more_pass_ahead_changes_neither_passes_nor_their_needs(name: str, stages: int) -> None:
    entry = table()[name]
    chunks = entry.chunks or 2
    own = schedule(name, stages, max(2 * stages, entry.least(stages)), chunks)
    moved = overlap_forward_backward(own)
    assert [sorted(order) for order in moved.orders] == [sorted(order) for order in own.orders]
    for order, pairs in zip(moved.orders, moved.pairs, strict=True):
        for place in pairs:
            assert order[place].kind == "F"
            assert order[place + 1].kind in ("B", "I")


SMALL = {"gpus": 64, "model.layers": 8, "plan.pp": 2, "plan.interleave": 2, "plan.ep": 8,
         "plan.global_batch": 256, "topology": "dgx-h100-ndr",
         "node.bandwidth": "100 GB/s"}  # fmt: skip


def setup(**changes: Any) -> PlanSetup:
    return from_scenario(load("mixtral-8x7b", SMALL | changes))


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "changes",
    [{}, {"plan.interleave": 1, "plan.schedule": "1f1b"},
     {"plan.schedule": "dualpipev", "plan.interleave": 2},
     {"plan.schedule": "dualpipe", "plan.interleave": 2},
     {"plan.pp": 1, "plan.interleave": 1, "plan.schedule": "1f1b"}],
    ids=str,
)  # fmt: skip
def test_an_overlapped_step_is_played_alike_by_all_engines(changes: dict[str, Any]) -> None:
    job = setup(**changes, **{"plan.overlap_experts": True})
    program = training_step(job.job)
    clock, quick = (play(program, job.machine, engine=engine) for engine in ("clock", "auto"))
    assert quick.end == pytest.approx(clock.end, rel=1e-9)
    folded, unfolded = answer(job), answer(job, unfold=True)
    assert folded.step_time == pytest.approx(unfolded.step_time, rel=1e-9)


def test_overlap_hides_tokens_under_way_and_nothing_else() -> None:
    still = {"device.interference": 0.0}
    alone, both = answer(setup(**still)), answer(setup(**still, **{"plan.overlap_experts": True}))
    assert both.breakdown["expert communication"] < 0.5 * alone.breakdown["expert communication"]
    assert both.step_time < alone.step_time
    assert both.breakdown["compute"] == pytest.approx(alone.breakdown["compute"], rel=1e-6)
    assert both.memory_per_gpu["activations"] > alone.memory_per_gpu["activations"]


@pytest.mark.parametrize("name", ["dualpipe", "dualpipev"])
def test_schedules_of_pairs_run_one_pass_behind_the_other_where_overlap_is_refused(
    name: str,
) -> None:
    """As DualPipe's pairs do in PyTorch, in the same order; tokens then hide behind nothing."""
    own = {"plan.schedule": name, "device.interference": 0.0}
    unsaid, alone, both = (
        answer(setup(**own, **way))
        for way in ({}, {"plan.overlap_experts": False}, {"plan.overlap_experts": True})
    )
    assert unsaid.step_time == both.step_time < alone.step_time
    # What is left is the end of the pipeline, and the SMs that the all-to-alls hold.
    assert both.breakdown["expert communication"] < 0.6 * alone.breakdown["expert communication"]
    plan = setup(**own, **{"plan.overlap_experts": False}).job.plan
    assert plan.passes().orders == setup(**own).job.plan.passes().orders
    beside = {"plan.overlap_shared": True, "model.blocks.experts.shared": 1}
    with pytest.raises(InputError, match=rf"\({name}\); set overlap_experts = false, or leave"):
        setup(**own, **beside)
    assert setup(**own, **beside, **{"plan.overlap_experts": False}).job.overlaps_shared


def test_a_pair_takes_the_memory_of_one_pass_and_a_layer() -> None:
    """Megatron-Core goes through both layer by layer, one forward and one back, so that with a
    single stage no more is kept than without overlap but for the layer under way."""
    one = {"plan.pp": 1, "plan.interleave": 1, "plan.schedule": "1f1b"}
    alone, both = (setup(**one, **{"plan.overlap_experts": own}) for own in (False, True))
    layer = both.job.block("experts").saved
    kept = [on.parts["activations"] for own in (alone, both)
            for on in memories(own.job, training_step(own.job))]  # fmt: skip
    assert kept[0] < kept[1] <= kept[0] + layer + both.job.block("embedding").saved


def test_a_pair_of_deepseek_v3_takes_what_its_profile_shows() -> None:
    """kernels/deepseek_v3_train_profile.csv: four layers forward and back on EP 64, H800. The
    compute stream is busy for 118.2 ms, compute and all-to-all together for 128.5 ms.

    Nothing is from this profile but which kernels there are and on how many SMs they run. The
    all-to-alls by themselves are missed: dispatch and combine take 80.4 ms there, a third less
    here, as they do alone (collectives/deepep_alltoall.csv). A profiler also counts how long their
    kernels wait for other ranks, 33 ms there; here all ranks are alike, and a collective lasts from
    when all have come.
    """
    job = from_scenario(load("deepseek-v3"))
    program = training_step(job.job)
    machine = FoldedMachine(Folding(program, job.machine))
    stage, pass_time = 7, machine.costs[7].of
    layers = 4
    busy = sum(
        item.device
        for kind in ("F", "B")
        for item in job.job.work("experts", kind).flat()
        if isinstance(item, Segment)
    )
    assert layers * busy == pytest.approx(118.2e-3, rel=0.10)
    ops_by_variant = program.stages[stage].ops_by_variant
    both = sum(
        pass_time(operation.work).duration.device
        for variant in (PassVariant("F", 0, beside=("B", 1)), PassVariant("B", 1, beside=("F", 0)))
        for operation in ops_by_variant[variant]
        if isinstance(operation, Compute)
    )
    assert both == pytest.approx(128.5e-3, rel=0.10)


def of_the_profile(kernel: Kernel) -> str:
    if isinstance(kernel, Attention):
        return "attention"
    if not isinstance(kernel, Gemm) or kernel.precision != "fp8":
        return "other"
    return "wgrad" if kernel.accumulate else "grouped" if kernel.batch > 1 else "dense"


def test_the_kernels_of_deepseek_v3_take_what_its_profile_shows() -> None:
    """The same profile by kind: dense products 18.8 ms, grouped ones 22.9 ms, attention with what
    surrounds it 22.0 ms. Gradients of weights take 21.4 ms of the compute stream, and 32.8 ms with
    those beside them on a second stream, which share its SMs. Kernels are those of a board, not of
    the slowest of 2,048."""
    job = from_scenario(load("deepseek-v3", {"change.device.draw.spread": 0.0})).job
    layer, taken = job.block("experts"), dict.fromkeys(("dense", "grouped", "attention"), 0.0)
    for kernel in kernels_of((*layer.forward, *layer.recompute, *layer.backward)):
        kind = of_the_profile(kernel)
        taken[kind] = taken.get(kind, 0.0) + 4 * 1e3 * job.time(kernel)
    assert taken["dense"] == pytest.approx(18.8, rel=0.04)
    assert taken["grouped"] == pytest.approx(22.9, rel=0.06)
    assert taken["attention"] == pytest.approx(22.0, rel=0.03)
    assert 21.4 < taken["wgrad"] < 32.8
