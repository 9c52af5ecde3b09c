"""From measurements to a profile: rates, smoothness, errors on what was kept out; written, read."""

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from sim.analysis.calibration.fitting.device_profile import profiled
from sim.analysis.calibration.fitting.profile_file import write
from sim.analysis.calibration.timing.kernel_suite import kernel_cases
from sim.config.errors import InputError
from sim.config.units import quantity
from sim.hardware import device as devices
from sim.hardware.cluster.topology import load
from sim.hardware.kernels import profile as profiles
from sim.hardware.kernels.environment import Environment, LaunchTimes
from sim.hardware.kernels.measurements import Measurement
from sim.hardware.kernels.profile import Profile
from sim.hardware.kernels.rates import MemoryBoundRates
from sim.hardware.kernels.time import kernel_time
from sim.model.kernels import Kernel, MemoryBound

pytest.importorskip("scipy")
pytest.importorskip("tomli_w")


@pytest.fixture(scope="module")
def profile() -> Profile:
    """Of a CPU that differs from the file: half as fast in products, a third in memory."""
    plain = devices.load("cpu")
    peak = replace(plain.peak, fp32=plain.peak_rate("fp32") / 2)
    real = replace(plain, name="real", peak=peak, memory_bandwidth=plain.memory_bandwidth / 3)

    def seconds(kernel: Kernel) -> float:
        return kernel_time(kernel, real, tuple(real.attention))

    measured = [
        Measurement(kernel=case.kernel, seconds=seconds(case.kernel), kept_out=case.kept_out)
        for case in kernel_cases("cpu", "quick")
        if not isinstance(case.kernel, MemoryBound) or case.kernel.name in ("stream", "gelu")
    ]
    around = Environment(host=LaunchTimes(issue=1e-6, latency=2e-6))
    return profiled(
        "cpu", measured, table="mine.csv", provenance={"torch": "2.9"}, environment=around
    )


def test_shapes_kept_out_of_the_fit_are_predicted(profile: Profile) -> None:
    residuals = {residual.kind: residual for residual in profile.origin.residuals}
    assert set(residuals) == {"gemm", "attention", "stream"}
    for residual in residuals.values():
        assert residual.median < 0.05
        assert residual.sigma < 0.2
    assert residuals["gemm"].shapes >= 10


def test_what_is_written_is_read_again_and_predicts_the_same(
    profile: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mine.toml"
    write(profile, path)
    again = profiles.load(str(path))
    assert again.origin.rates == profile.origin.rates
    assert again.origin.residuals == profile.origin.residuals
    assert again.environment.host == profile.environment.host
    assert len(again.measurements) == len(profile.measurements)
    assert tomllib.loads(path.read_text())["format"] == 1


def test_a_table_that_was_cut_is_refused_wherever_the_cut_is(
    profile: Profile, tmp_path: Path
) -> None:
    path, table = tmp_path / "mine.toml", tmp_path / "mine.csv"
    provenance = {"samples": len(profile.measurements)}
    write(replace(profile, origin=replace(profile.origin, provenance=provenance)), path)
    text = table.read_text()
    assert len(profiles.load(str(path)).measurements) == len(profile.measurements)
    for cut in range(text[:-1].rindex("\n") + 1, len(text) - 1):
        table.write_text(text[:cut])
        with pytest.raises(InputError, match=r"mine\.csv"):
            profiles.load(str(path))


def test_a_cluster_takes_the_rates_of_its_profile(profile: Profile, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    write(profile, path)
    (tmp_path / "cluster.toml").write_text('device = "cpu"\ngpus = 1\ngpus_per_node = 1\n')
    device = load(str(tmp_path / "cluster.toml"), {"device.profile": str(path)}).device
    assert device.peak_rate("fp32") == pytest.approx(
        max(
            product.kernel.flops / product.seconds
            for product in profile.fitted("gemm")
            if not isinstance(product.kernel, MemoryBound)
        ),
        rel=1e-3,
    )
    for product in profile.fitted("gemm")[:5]:
        # Written to six digits.
        assert kernel_time(product.kernel, device) == pytest.approx(product.seconds, rel=1e-5)


def test_the_gap_that_was_timed_with_the_smallest_kernel_is_not_added_to_it_again() -> None:
    a100 = devices.load("a100-80gb-sxm")
    assert a100.stream.gap > 0.0
    kernels = [MemoryBound(name="stream", bytes=10.0**power) for power in range(3, 10)]
    measured = [Measurement(kernel=own, seconds=kernel_time(own, a100)) for own in kernels]
    rates = profiled("a100-80gb-sxm", measured, table="mine.csv", provenance={}).origin.rates
    stream = MemoryBoundRates(
        bandwidth=rates["stream"]["bandwidth"],
        **{key: quantity(rates["stream"][key], "s") for key in ("floor", "gap")},
    )
    again = kernel_time(kernels[0], replace(a100, stream=stream))
    assert again == pytest.approx(measured[0].seconds, rel=1e-2)
