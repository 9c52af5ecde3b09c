"""From measurements to a profile: rates, smoothness, errors where kept out; written and read."""

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from sim.calibration.fitting.device import profiled
from sim.calibration.fitting.profile_file import write
from sim.calibration.timing.suite import suite
from sim.hardware import device as devices
from sim.hardware.cluster.topology import load
from sim.hardware.kernels import profile as profiles
from sim.hardware.kernels.environment import Environment, LaunchTimes
from sim.hardware.kernels.measurements import Measurement
from sim.hardware.kernels.profile import Profile
from sim.hardware.kernels.time import kernel_time
from sim.model.kernels import Kernel, MemoryBound

pytest.importorskip("scipy")
pytest.importorskip("tomli_w")


@pytest.fixture(scope="module")
def found() -> Profile:
    """Of a CPU that is not the file's: half as fast in products, a third in memory."""
    plain = devices.load("cpu")
    peak = replace(plain.peak, fp32=plain.peak_rate("fp32") / 2)
    real = replace(plain, name="real", peak=peak, memory_bandwidth=plain.memory_bandwidth / 3)

    def seconds(kernel: Kernel) -> float:
        return kernel_time(kernel, real, tuple(real.attention))

    measured = [
        Measurement(kernel=case.kernel, seconds=seconds(case.kernel), kept_out=case.kept_out)
        for case in suite("cpu", "quick")
        if not isinstance(case.kernel, MemoryBound) or case.kernel.name in ("stream", "gelu")
    ]
    around = Environment(host=LaunchTimes(issue=1e-6, latency=2e-6))
    return profiled(
        "cpu", measured, table="mine.csv", provenance={"torch": "2.9"}, surroundings=around
    )


def test_shapes_kept_out_of_the_fit_are_predicted(found: Profile) -> None:
    residuals = {one.kind: one for one in found.origin.residuals}
    assert set(residuals) == {"gemm", "attention", "stream"}
    for one in residuals.values():
        assert one.median < 0.05
        assert one.sigma < 0.2
    assert residuals["gemm"].shapes >= 10


def test_what_is_written_is_read_again_and_predicts_the_same(
    found: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mine.toml"
    write(found, path)
    again = profiles.load(str(path))
    assert again.origin.rates == found.origin.rates
    assert again.origin.residuals == found.origin.residuals
    assert again.environment.host == found.environment.host
    assert len(again.measurements) == len(found.measurements)
    assert tomllib.loads(path.read_text())["format"] == 1


def test_a_cluster_takes_the_rates_of_its_profile(found: Profile, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    write(found, path)
    (tmp_path / "one.toml").write_text('device = "cpu"\ngpus = 1\ngpus_per_node = 1\n')
    device = load(str(tmp_path / "one.toml"), {"device.profile": str(path)}).device
    assert device.peak_rate("fp32") == pytest.approx(
        max(
            one.kernel.flops / one.seconds
            for one in found.fitted("gemm")
            if not isinstance(one.kernel, MemoryBound)
        ),
        rel=1e-3,
    )
    for one in found.fitted("gemm")[:5]:
        # Written to six digits.
        assert kernel_time(one.kernel, device) == pytest.approx(one.seconds, rel=1e-5)
