"""Times from a profile: measured where measured, smooth between, the model's far away."""

from dataclasses import replace
from math import exp, log

import numpy as np
import pytest

from sim.hardware.kernels.calibrated import Calibrated, Field, likeliest
from sim.hardware.kernels.measurements import Measurement
from sim.hardware.kernels.profile import Curve, Origin, Profile, Smoothness
from sim.model.kernels import Attention, Gemm, Kernel, MemoryBound

SMOOTH = Smoothness(length=2.0, amplitude=0.3, noise=0.01)


def gemm(m: int, name: str = "forward", **changes: object) -> Gemm:
    return Gemm(name=name, m=m, n=256, k=256, precision="fp32", **changes)  # type: ignore[arg-type]


def modelled(kernel: Kernel) -> float:
    return 1e-3


def profile(
    *measured: tuple[Kernel, float], kept_out: tuple[Kernel, float] | None = None
) -> Profile:
    rows = [Measurement(kernel=kernel, seconds=seconds) for kernel, seconds in measured]
    if kept_out:
        rows.append(Measurement(kernel=kept_out[0], seconds=kept_out[1], kept_out=True))
    origin = Origin(device="cpu", measurements="", smoothness={"gemm": SMOOTH})
    return Profile(origin=origin, measurements=tuple(rows))


def seconds(times: Calibrated, kernel: Kernel) -> float:
    known = times(kernel)
    assert known is not None
    return known.seconds


def test_a_measured_shape_takes_what_was_measured_whatever_it_is_called() -> None:
    times = Calibrated(profile((gemm(256), 1.2e-3)), modelled)
    assert seconds(times, gemm(256, "qkv")) == 1.2e-3


def test_between_measured_shapes_the_model_is_mended_by_both() -> None:
    times = Calibrated(profile((gemm(256), 1.2e-3), (gemm(1024), 1.2e-3)), modelled)
    assert 1.1e-3 < seconds(times, gemm(512)) < 1.3e-3


def test_far_from_measured_shapes_the_model_stands_and_a_range_is_named() -> None:
    times = Calibrated(profile((gemm(256), 1.5e-3), (gemm(1024), 1.5e-3)), modelled)
    known = times(gemm(2**24))
    assert known is not None
    assert known.seconds == pytest.approx(1e-3, rel=1e-3)
    assert known.outside == "m = 16,777,216, measured from 256 to 1,024"
    inside = times(gemm(512))
    assert inside is not None
    assert inside.outside == ""


def test_what_was_kept_out_is_not_seen() -> None:
    alone = Calibrated(profile((gemm(256), 1.2e-3)), modelled)
    beside = Calibrated(profile((gemm(256), 1.2e-3), kept_out=(gemm(300), 9.0)), modelled)
    assert seconds(alone, gemm(300)) == seconds(beside, gemm(300))


def test_a_gradient_is_nearer_to_its_like() -> None:
    times = Calibrated(profile((gemm(256), 1e-3), (gemm(256, "wgrad"), 1.4e-3)), modelled)
    assert seconds(times, gemm(280, "ffn in wgrad")) > seconds(times, gemm(280, "ffn in"))


def test_another_precision_or_class_is_not_known() -> None:
    times = Calibrated(profile((gemm(256), 1e-3)), modelled)
    assert times(Gemm(name="", m=256, n=256, k=256, precision="bf16")) is None
    attention = Attention(
        name="", batch=1, heads=1, kv_heads=1, q=8, kv=8, head=8, causal=True, precision="fp32"
    )
    assert times(attention) is None
    assert times(MemoryBound(name="gelu", bytes=8.0)) is None


def test_products_are_known_where_the_software_has_no_fused_attention() -> None:
    attention = Attention(
        name="", batch=1, heads=1, kv_heads=1, q=8, kv=8, head=8, causal=True, precision="fp32"
    )

    def without(kernel: Kernel) -> float:
        assert not isinstance(kernel, Attention), "the stack offers none"
        return 1e-3

    measured = profile((gemm(256), 1.2e-3), (attention, 1e-3))
    smooth = {"gemm": SMOOTH, "attention": SMOOTH}
    times = Calibrated(
        replace(measured, origin=replace(measured.origin, smoothness=smooth)), without
    )
    assert seconds(times, gemm(300)) > 1e-3


def test_memory_bound_kernels_lie_on_the_curve_of_their_kind() -> None:
    streams = [
        (MemoryBound(name=name, bytes=size), size * pace)
        for name, pace in (("stream", 1e-9), ("gelu", 5e-9))
        for size in (1e3, 1e6)
    ]
    times = Calibrated(profile(*streams), modelled)
    assert seconds(times, MemoryBound(name="transform gelu", bytes=1e5)) == pytest.approx(5e-4)
    assert seconds(times, MemoryBound(name="merge heads", bytes=1e5)) == pytest.approx(1e-4)
    known = times(MemoryBound(name="gelu", bytes=1e9))
    assert known is not None
    assert known.seconds == pytest.approx(5.0)
    assert known.outside == "bytes = 1,000,000,000, measured from 1,000 to 1,000,000"


def test_kernels_of_no_kind_are_launched_one_by_one() -> None:
    floor = [(MemoryBound(name="stream", bytes=size), 1e-6 + size * 1e-12) for size in (1e3, 1e9)]
    times = Calibrated(profile(*floor), modelled)
    four = seconds(times, MemoryBound(name="positions", bytes=4e3, launches=4))
    assert four == pytest.approx(4 * (1e-6 + 1e-9))


def test_a_curve_goes_through_its_points_and_rises() -> None:
    curve = Curve(((1e3, 2e-6), (1e4, 3e-6), (1e6, 1e-4)))
    assert curve(1e4) == pytest.approx(3e-6)
    sizes = np.geomspace(1e2, 1e8, 50)
    assert (np.diff([curve(size) for size in sizes]) >= 0).all()


def test_the_likeliest_smoothness_predicts_a_smooth_field() -> None:
    draw = np.random.default_rng(0)
    points = draw.uniform(0.0, 10.0, size=(60, 1))
    values = 0.2 * np.sin(points[:, 0] / 2) + draw.normal(scale=0.01, size=60)
    field = Field(points=points, values=values, smoothness=likeliest(points, values))
    wanted = 0.2 * np.sin(np.array([2.2, 5.5, 7.7]) / 2)
    values = [field.at([x]) for x in (2.2, 5.5, 7.7)]
    assert values == pytest.approx(list(wanted), abs=0.02)
    assert abs(log(exp(field.at([500.0])))) < 1e-6
