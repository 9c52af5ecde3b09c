"""Bytes of the optimizer step, by hand and by law."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.model.optimizers import OPTIMIZERS, gradient_width, optimizer_work


def moved(**options) -> dict[str, float]:
    return {kernel.name: kernel.bytes for kernel in optimizer_work(parameters=1.0, **options)}


def test_mixed_precision_step_of_megatron_2021_is_seven_passes() -> None:
    steps = moved(precision="fp16", gradients="buffer")
    assert steps == {
        "cast gradients": 6,
        "unscale gradients": 8,
        "gradient norm": 4,
        "clip gradients": 8,
        "adam": 28,
        "copy to weights": 6,
        "zero gradients": 2,
    }


def test_fp32_gradients_need_no_cast_and_bf16_no_unscaling() -> None:
    assert list(moved(precision="bf16", gradients="fused")) == [
        "gradient norm",
        "clip gradients",
        "adam",
        "copy to weights",
        "zero gradients",
    ]


def test_fp32_training_has_no_master_copy() -> None:
    assert "copy to weights" not in moved(precision="fp32", gradients="grad")


@given(st.sampled_from(sorted(OPTIMIZERS.keys() - {"sgd", "adam-8bit"})))
def test_a_fused_update_moves_fewer_bytes_in_fewer_launches(name) -> None:
    fused = optimizer_work(parameters=1e9, optimizer=name, fused=True)
    each = optimizer_work(parameters=1e9, optimizer=name, fused=False)
    assert sum(k.bytes for k in fused) < sum(k.bytes for k in each)
    assert sum(k.launches for k in fused) < sum(k.launches for k in each)


def test_an_optimizer_that_loops_over_tensors_launches_its_operations_for_each() -> None:
    options = {"parameters": 1e6, "precision": "fp32", "fused": False, "tensors": 300}
    at_once, looped = (optimizer_work(**options, by_tensor=loops) for loops in (False, True))
    launches = [{k.name: k.launches for k in work}["adam for-each"] for work in (at_once, looped)]
    assert launches == [8, 8 * 300]
    assert sum(k.bytes for k in at_once) == sum(k.bytes for k in looped)


@given(st.integers(2, 64))
def test_sharding_divides_all_but_the_zeroing(dp) -> None:
    whole = optimizer_work(parameters=1e9)
    part = optimizer_work(parameters=1e9, updated=1e9 / dp)
    for kernel, own in zip(whole, part, strict=True):
        shared = 1 if kernel.name == "zero gradients" else dp
        assert kernel.bytes == pytest.approx(own.bytes * shared)


@pytest.mark.parametrize(
    ("precision", "gradients", "width"),
    [("fp16", "buffer", 2), ("fp16", "fp32-buffer", 4), ("fp32", "grad", 4), ("fp8", "grad", 2)],
)
def test_gradients_are_as_wide_as_their_buffer(precision, gradients, width) -> None:
    assert gradient_width(precision, gradients) == width


def test_fresh_gradients_are_not_zeroed() -> None:
    options = dict(parameters=1.0, precision="fp32", clip=False)
    fresh, kept = (optimizer_work(**options, gradients=kind) for kind in ("fresh", "grad"))
    assert [kernel.name for kernel in kept if kernel not in fresh] == ["zero gradients"]
