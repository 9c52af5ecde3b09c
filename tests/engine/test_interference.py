"""What kernels lose to collectives beside them."""

from dataclasses import replace

import pytest

from sim import run
from sim.engine.costs import MOST, losses
from sim.hardware.device import load
from sim.kind import load as load_scenario

A100, H100 = load("a100-80gb-sxm"), load("h100-80gb-sxm")


def test_kernels_of_many_waves_lose_the_sms_that_the_collective_holds():
    assert losses(A100, ctas=24, moved=0.0)["gemm"] == pytest.approx(24 / 108)


def test_products_of_one_cta_an_sm_lose_as_much_beside_few_channels_as_beside_many():
    # 47 of 80 % of the peak, forums.developer.nvidia.com, topic 337991.
    few, many = (losses(H100, ctas=ctas, moved=0.0)["gemm"] for ctas in (2, 24))
    assert few == many == pytest.approx(1 - 47 / 80, abs=0.01)


def test_memory_bound_kernels_lose_bandwidth_and_no_sms():
    half = 0.25 * A100.memory_bandwidth * A100.stream.bandwidth
    assert losses(A100, ctas=24, moved=half)["stream"] == pytest.approx(0.25)
    assert losses(A100, ctas=24, moved=1e15)["stream"] == MOST
    assert losses(A100, ctas=0, moved=0.0) == dict.fromkeys(losses(A100, ctas=0, moved=0.0), 0.0)


@pytest.mark.parametrize("zero", [0, 1])
def test_gradients_reduced_beside_the_last_backward_pass_slow_it(zero):
    base = load_scenario("megatron-1.7b")
    plan = replace(base.plan, zero=zero, dp=None)
    own = replace(base, gpus=16, stack="pytorch-ddp", topology="dgx-h100-ndr", plan=plan)
    calm, busy = (run(replace(own, change={"device.interference": loss})) for loss in (0.0, 0.41))
    assert busy.breakdown["data communication"] > calm.breakdown["data communication"]
    assert busy.breakdown["compute"] == pytest.approx(calm.breakdown["compute"])
