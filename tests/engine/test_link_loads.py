"""What links carry: laws, and the same as the rates over time add up to."""

from dataclasses import replace

import numpy as np
import pytest

import sim
from sim import kind, run
from sim.engine.costs import MOST, losses
from sim.engine.fold import Folding
from sim.engine.play import play
from sim.engine.timeline import Timeline
from sim.hardware.device import load as device_of
from sim.kind import load
from sim.model.kernels import ONE_WAVE
from sim.parallel.step import training_step
from sim.program.causes import DATA
from sim.program.operations import (
    Collective,
    Communicate,
    Compute,
    PassOps,
    Segment,
    beside_kernels,
)
from sim.results.result import Result
from sim.scenario.scenario import BaseScenario
from sim.scenario.setup import from_scenario
from tests.campaign.records import over_capacity
from tests.engine.programs import training

DDP = {"gpus": 8, "plan.dp": 8, "plan.microbatch": 12}

NARROW = 20e9  # B/s, of a port
A100, H100 = device_of("a100-80gb-sxm"), device_of("h100-80gb-sxm")
AWAY = {"gpus": 24, "plan.dp": 24, "plan.global_batch": 96, "model.layers": 2}


def test_ddp_sends_its_gradients_once_a_step_however_many_microbatches_it_has() -> None:
    few, many = (run(load("gpt2-one-gpu", DDP | {"plan.global_batch": 96 * n})) for n in (1, 5))
    sent = [{load.name: load.bytes for load in result.links} for result in (few, many)]
    assert sent[0].keys() == {"port-up 0", "port-down 0"}
    assert sent[0]["port-up 0"] == sent[0]["port-down 0"] == pytest.approx(sent[1]["port-up 0"])
    assert few.links[0].busy > 2.0 * many.links[0].busy
    ring = 2.0 * 7.0 / 8.0 * 2.0 * few.parameters  # bytes of fp16; small buckets take trees
    assert 1.0 <= sent[0]["port-up 0"] / ring < 1.05
    link = few.links[0]
    assert link.bytes < link.busy * link.capacity * few.step_time  # the protocol's come on top


@pytest.mark.parametrize(("zero", "each"), [(0, 1.0), (1, 1.0), (3, 1.5)])
def test_of_two_gpus_each_sends_half_of_what_is_reduced_or_gathered(zero: int, each: float) -> None:
    """Gradients are reduced and weights gathered once, with ZeRO-3 gathered twice; in fp16."""
    job = {"topology": "dgx-h100-ndr", "gpus": 2, "plan.zero": zero, "plan.dp": 2}
    result = run(load("gpt2-one-gpu", job | {"plan.global_batch": 8, "plan.microbatch": 4}))
    sent = {link.name: link.bytes for link in result.links}
    assert sent["port-up 0"] / result.parameters == pytest.approx(2.0 * each, rel=0.01)


@pytest.mark.parametrize("name", ["megatron-3.6b", "llama2-7b-offload", "bert-large-tpu-v2"])
def test_links_carry_what_their_rates_add_up_to_and_never_more_than_they_can(name: str) -> None:
    result = run(name)
    over_time = _added_up(result.timeline)
    found = {load.name: load for load in result.links}
    assert over_time
    for link, size in over_time.items():
        busy = found[link].busy * found[link].capacity * result.step_time
        assert busy == pytest.approx(size, rel=1e-6)
        assert found[link].busy <= 1.0 + 1e-9
        assert 0.0 < found[link].bytes <= busy * (1.0 + 1e-9)


def _added_up(timeline: Timeline) -> dict[str, float]:
    """Bytes by link: its rate integrated over the step."""
    return {
        rate.of.partition(" (")[0]: float(np.sum(rate.values[:-1] * np.diff(rate.times)))
        for rate in timeline.rates
        if rate.unit == "B/s"
    }


def test_a_step_without_anybody_to_talk_to_loads_nothing() -> None:
    assert not list(run("gpt2-one-gpu").links)


def sequences(**plan: object) -> BaseScenario:
    """Gradients are summed over the very ranks that exchange keys and values in the passes."""
    job = {"name": "cp", "model": "llama3-8b", "topology": "dgx-a100-hdr", "gpus": 8}
    layout = {"global_batch": 1, "cp": 8, "dp": 1, "zero": 0, **plan}
    return kind.described({**job, "stack": "megatron-core", "plan": layout},
                          {"node.bandwidth": f"{NARROW} B/s"})  # fmt: skip


def result(**plan: object) -> Result:
    found = sim.run(sequences(**plan))
    assert isinstance(found, Result)
    return found


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_transfers_of_one_communicator_share_its_links(recompute: str) -> None:
    setup = from_scenario(sequences(recompute=recompute))
    assert over_capacity(play(setup.program, setup.machine, engine="clock")) == ""


def test_more_bytes_on_a_busy_link_take_longer() -> None:
    once, again = result(), result(recompute="full")
    more = sum(link.bytes for link in again.links) - sum(link.bytes for link in once.links)
    ports = len(once.links)
    assert more > 0.0
    least = more / ports / max(link.capacity for link in once.links)
    assert again.step_time - once.step_time >= 0.99 * least


def test_kernels_of_many_waves_lose_the_sms_that_the_collective_holds():
    assert losses(A100, ctas=24, moved=0.0)["gemm"] == pytest.approx(24 / 108)


def test_products_of_one_cta_an_sm_lose_as_much_beside_few_channels_as_beside_many():
    # 47 of 80 % of the peak, forums.developer.nvidia.com, topic 337991.
    few, many = (losses(H100, ctas=ctas, moved=0.0)["gemm"] for ctas in (2, 24))
    assert few == many == pytest.approx(1 - 47 / 80, abs=0.01)


@pytest.mark.parametrize(
    ("on", "ctas", "times"),
    [
        # Medians of 13 kernels each, by benchmarks.beside_collectives: deepseek; hta, nccl_data
        ("h800-80gb-sxm", 20, 1.14),
        ("a100-80gb-sxm", 8, 1.07),
    ],
)
def test_memory_bound_kernels_lose_the_sms_that_the_collective_holds(on, ctas, times):
    lost = losses(device_of(on), ctas=ctas, moved=0.0)["stream"]
    assert 1 / (1 - lost) == pytest.approx(times, abs=0.04)


def test_a_kernel_of_one_cta_an_sm_needs_a_second_wave():
    """98 us alone, 183 beside DeepEP: ln_bwd_kernel of 132 CTAs on H800 (traces/deepseek)."""
    lost = losses(device_of("h800-80gb-sxm"), ctas=20, moved=0.0)[ONE_WAVE]
    assert 98 / (1 - lost) == pytest.approx(183, rel=0.1)
    assert losses(H100, ctas=0, moved=0.0)[ONE_WAVE] == 0.0


@pytest.mark.parametrize(("norms", "waits"), [("transformer-engine", True), ("cudnn", False)])
def test_transformer_engine_s_backward_norms_wait_for_it(norms, waits):
    job = {"topology": "dgx-h100-ndr", "gpus": 16, "plan.tp": 1, "plan.dp": 16}
    base = load("megatron-1.7b", {**job, "stack": "megatron-core"})
    own = from_scenario(replace(base, change={"stack.fusion.norms": norms}))
    found = {
        kind
        for stage in own.program.stages
        for ops in stage.ops_by_variant.values()
        for op in ops
        if isinstance(op, Compute)
        for item in op.work.flat()
        if isinstance(item, Segment)
        for kind, _ in item.kernels
    }
    assert (ONE_WAVE in found) == waits


def test_memory_bound_kernels_lose_the_bandwidth_that_the_collective_takes():
    half = 0.25 * A100.memory_bandwidth * A100.stream.bandwidth
    assert losses(A100, ctas=24, moved=half)["stream"] == pytest.approx(0.25)
    assert losses(A100, ctas=24, moved=1e15)["stream"] == MOST
    assert losses(A100, ctas=0, moved=0.0) == dict.fromkeys(losses(A100, ctas=0, moved=0.0), 0.0)


@pytest.mark.parametrize(
    ("gpus", "quiet", "times"), [(8, False, 2.0), (8, True, 1.0), (16, False, 1.0)]
)
def test_a_collective_beside_kernels_keeps_a_share_of_its_ports_alone(gpus, quiet, times):
    """A slow network keeps all of what it carries, and copy engines what they copy."""
    given = {"topology": "dgx-h100-ndr", "gpus": gpus, "plan.dp": gpus, "plan.tp": 1}
    slow = {"network.bandwidth": "1 GB/s", "device.beside": 0.5}
    job = from_scenario(load("megatron-1.7b", given | slow))
    links = Folding(training_step(job.job), job.machine).desk.at(0).links_of(0)
    call = Collective(
        kind="all_gather", axes=("dp",), bytes=1e12, name="weights", cause=DATA, quiet=quiet
    )
    alone, both = links.seconds(call), links.seconds(beside_kernels(call))
    assert both == pytest.approx(times * alone, rel=1e-3)


@pytest.mark.parametrize("engine", ["replay", "clock"])
def test_a_collective_of_two_stages_is_as_slow_as_the_stage_with_more_kernels_beside_it(engine):
    given = {"topology": "dgx-h100-ndr", "gpus": 8, "plan.dp": 8, "plan.tp": 1}
    machine = from_scenario(load("megatron-1.7b", given | {"device.beside": 0.5})).machine
    made = training(pp=2, dp=4, microbatches=2)
    whole = Collective(kind="all_reduce", axes=("dp", "pp"), bytes=1e9, name="all", cause=DATA)

    def seconds(*beside: float) -> float:
        calls = [beside_kernels(whole, each) for each in beside]
        stages = tuple(
            replace(stage, closing=PassOps((Communicate(name="all", calls=(call,)),)))
            for stage, call in zip(made.stages, calls, strict=True)
        )
        return play(replace(made, stages=stages), machine, engine=engine).step_time

    assert seconds(0.0, 0.0) < seconds(1e-3, 1e-3) < seconds(2e-3, 2e-3)
    assert seconds(1e-3, 2e-3) == seconds(2e-3, 1e-3) == seconds(2e-3, 2e-3)
    assert seconds(0.0, 2e-3) == seconds(2e-3, 0.0) == seconds(2e-3, 2e-3)


@pytest.mark.parametrize("zero", [0, 1])
def test_gradients_reduced_beside_the_last_backward_pass_slow_it(zero):
    base = load("megatron-1.7b")
    plan = replace(base.plan, zero=zero, dp=None)
    own = replace(base, gpus=16, stack="pytorch-ddp", topology="dgx-h100-ndr", plan=plan)
    calm, busy = (run(replace(own, change={"device.interference": loss})) for loss in (0.0, 0.41))
    assert busy.breakdown["data communication"] > calm.breakdown["data communication"]
    assert busy.breakdown["compute"] == pytest.approx(calm.breakdown["compute"])


@pytest.mark.parametrize("link", ["node2.pcie0", "node2.memory", "node2.nic1", "gpu20.port"])
def test_a_slow_link_of_the_last_node_is_seen_folded_as_rank_by_rank(link: str) -> None:
    slow = {"straggler": [{"link": link, "factor": 20.0}]}
    setup = kind.set_up(kind.load("llama2-7b-offload", AWAY | slow))
    folded, every = (kind.answer(setup, unfold=unfold) for unfold in (False, True))
    assert folded.get("step_time") == pytest.approx(every.get("step_time"), rel=1e-9)
    healthy = kind.answer(kind.set_up(kind.load("llama2-7b-offload", AWAY)))
    assert folded.get("step_time") >= healthy.get("step_time")
