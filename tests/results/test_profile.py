"""`sim show PROFILE`: what was measured, how well it is predicted, as text."""

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from sim.config.errors import InputError
from sim.hardware.kernels.environment import CopyTime, LaunchTimes, Slowdown
from sim.hardware.kernels.measurements import Measurement
from sim.hardware.kernels.profile import Origin, Profile
from sim.hardware.kernels.residuals import device_of, errors_by_class, predictions
from sim.interface.cli.main import main
from sim.interface.document import terminal
from sim.interface.views.profile import is_profile, view
from sim.model.kernels import Attention, Gemm, Kernel, MemoryBound

PEAK = 160e9  # FLOP/s of topologies/devices/cpu.toml


def gemm(size: int) -> Gemm:
    return Gemm(name="forward", m=size, n=size, k=size, precision="fp32")


def measured(kernel: Kernel, seconds: float, *, kept_out: bool = False) -> Measurement:
    return Measurement(kernel=kernel, seconds=seconds, kept_out=kept_out)


def attention(seq: int) -> Attention:
    return Attention(
        name="", batch=1, heads=4, kv_heads=4, q=seq, kv=seq, head=64, causal=True, precision="fp32"
    )


PROFILE = Profile(
    origin=Origin(device="cpu", measurements="mine.csv", provenance={"torch": "2.9", "driver": ""}),
    measurements=(
        *(measured(gemm(size), gemm(size).flops / (PEAK / 2)) for size in (256, 512, 1024)),
        measured(gemm(300), gemm(300).flops / PEAK, kept_out=True),
        measured(attention(128), 1e-3),
        *(measured(MemoryBound(name="gelu", bytes=size), size / 1e10) for size in (1e5, 1e7)),
        measured(MemoryBound(name="gelu", bytes=1e6), 1e6 / 2e10, kept_out=True),
    ),
)


def test_what_was_measured_is_predicted_as_measured() -> None:
    fitted = [row for row in predictions(PROFILE) if not row.measured.kept_out]
    assert [row.error for row in fitted] == pytest.approx([0.0] * len(fitted))


def test_errors_are_those_of_what_was_kept_out() -> None:
    groups = {line.group: line for line in errors_by_class(PROFILE, predictions(PROFILE))}
    assert list(groups) == ["gemm fp32", "attention fp32", "stream"]
    assert [line.kept_out for line in groups.values()] == [1, 0, 1]
    # Predicted from the curve, 1e10 B/s, and measured at twice that.
    assert groups["stream"].bias == pytest.approx(1.0)
    assert groups["gemm fp32"].best == pytest.approx(PEAK)
    assert groups["gemm fp32"].peak == PEAK
    assert groups["stream"].best == pytest.approx(1e10)


def test_a_line_says_where_each_class_stands() -> None:
    text = terminal.text(view(PROFILE, "mine"))
    assert text.startswith("mine: 8 kernels on cpu\n  torch  2.9\n\n")
    assert "driver" not in text
    (row,) = (line for line in text.splitlines() if line.startswith("  gemm fp32"))
    assert row.split()[2:4] == ["4", "1"]
    assert row.split()[-3:] == ["160", "GFLOP/s", "100%"]
    assert ["gelu", "10.0", "GB/s", "at", "9.54", "MiB"] in map(str.split, text.splitlines())


def test_what_surrounds_kernels_is_said_too() -> None:
    around = replace(
        PROFILE.origin,
        host=LaunchTimes(issue=4e-6, latency=8e-6, node=1.5e-6),
        copies=tuple(
            CopyTime(kind="host to device", pinned=pinned, bytes=2.0**28, time=seconds)
            for pinned, seconds in ((True, 5e-3), (False, 20e-3))
        ),
        overlaps=(Slowdown(kernel="gemm", beside="copy", slowdown=1.07),),
    )
    text = terminal.text(view(replace(PROFILE, origin=around), "mine"))
    assert "  launches     4.00 us each, 8.00 us there and back, 1.50 us a node of a graph" in text
    assert "  copies       host to device, pinned, 53.7 GB/s at 256 MiB" in text
    assert "  copies       host to device, 13.4 GB/s at 256 MiB" in text
    assert "  beside copy  gemm 1.07 times as long" in text


def test_a_profile_of_an_unknown_device_is_refused() -> None:
    origin = Origin(device="gpu-of-tomorrow", measurements="mine.csv")
    with pytest.raises(InputError, match="no device named 'gpu-of-tomorrow'"):
        device_of(Profile(origin=origin))


def test_the_command_tells_profiles_from_topologies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text('device = "cpu"\nmeasurements = "mine.csv"\n')
    (tmp_path / "mine.csv").write_text(
        "kernel,name,bytes,seconds,kept_out\nstream,gelu,1000000,1e-4,false\n"
    )
    shown = CliRunner().invoke(main, ["show", "mine.toml", "--picture", "mine.png"])
    assert shown.exit_code == 0, shown.output
    assert shown.output.startswith("mine: 1 kernels on cpu")
    assert (tmp_path / "mine.png").stat().st_size > 10_000
    assert not is_profile("dgx-a100-hdr")
