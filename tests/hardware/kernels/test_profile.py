"""Profiles: measured kernel times are preferred to modelled ones, and mend those nearby."""

import copy
from dataclasses import replace
from pathlib import Path

import pytest

from sim import run
from sim.config.errors import InputError
from sim.hardware import device as devices
from sim.hardware.cluster import topology as topologies
from sim.hardware.kernels import measurements
from sim.hardware.kernels import profile as profiles
from sim.hardware.kernels.calibrated import Calibrated
from sim.hardware.kernels.measurements import Measurement
from sim.hardware.kernels.profile import Origin, Profile, Smoothness
from sim.hardware.kernels.time import kernel_time, sourced_time
from sim.kind import described
from sim.model.kernels import Attention, Gemm, Kernel, MemoryBound

TOML = """
format = 1
device = "a100-80gb-sxm"
measurements = "mine.csv"

[provenance]
date = "2025-01-31"
samples = 6

[rates.gemm]
prologue = "7 us"

[smoothness.gemm]
length = 2.0
amplitude = 0.4
noise = 0.01
"""
HEADER = ",".join(measurements.COLUMNS) + "\n"
ROWS = (
    "gemm,,forward,512,256,128,1,,,,,,false,bf16,,1e-3,0.01,false\n"
    "gemm,,forward,4096,256,128,1,,,,,,false,bf16,,4e-3,0.01,false\n"
    "attention,,flash2,1024,1024,,2,8,8,64,true,true,,fp16,,2e-3,0.01,false\n"
    "stream,stream,,,,,,,,,,,,,1000,1e-6,0.01,false\n"
    "stream,stream,,,,,,,,,,,,,100000,1e-4,0.01,false\n"
    "stream,gelu,,,,,,,,,,,,,100000,9e-4,0.01,false\n"
)
PRODUCT = Gemm(name="qkv", m=512, n=256, k=128)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    there = tmp_path / "topologies" / "profiles"
    there.mkdir(parents=True)
    (there / "mine.toml").write_text(TOML)
    (there / "mine.csv").write_text(HEADER + ROWS)
    monkeypatch.chdir(tmp_path)
    return there


def measured() -> devices.Device:
    return replace(devices.load("a100-80gb-sxm"), profile="mine")


def test_measured_shapes_take_what_was_measured_whatever_they_are_called(folder: Path) -> None:
    assert kernel_time(PRODUCT, measured()) == 1e-3
    assert sourced_time(PRODUCT, measured()).source == "profile"
    backward = Attention(
        name="any",
        batch=2,
        heads=8,
        kv_heads=8,
        q=1024,
        kv=1024,
        head=64,
        causal=True,
        backward=True,
        precision="fp16",
    )
    assert kernel_time(backward, measured()) == 2e-3
    older = kernel_time(backward, measured(), ("flash1",))
    assert older == kernel_time(backward, devices.load("a100-80gb-sxm"), ("flash1",))


def test_what_was_measured_mends_the_model_nearby_and_not_far_away(folder: Path) -> None:
    plain = devices.load("a100-80gb-sxm")
    between = replace(PRODUCT, m=1024)
    assert kernel_time(between, measured()) > 2 * kernel_time(between, plain)
    far = Gemm(name="far", m=65536, n=65536, k=65536)
    assert kernel_time(far, measured()) == pytest.approx(kernel_time(far, plain), rel=0.01)


def test_other_precisions_are_left_to_the_model(folder: Path) -> None:
    half = sourced_time(replace(PRODUCT, precision="fp16"), measured())
    assert (half.source, half.outside) == ("model", "")


def test_a_kernel_beyond_the_measured_range_says_which_size_and_range(folder: Path) -> None:
    outside = sourced_time(replace(PRODUCT, k=8192), measured()).outside
    assert outside == "k = 8,192, measured from 128 to 128"
    large = sourced_time(MemoryBound(name="add", bytes=1e9), measured()).outside
    assert large == "bytes = 1,000,000,000, measured from 1,000 to 100,000"


def test_memory_bound_kernels_lie_between_measured_sizes(folder: Path) -> None:
    device = measured()
    assert kernel_time(MemoryBound(name="add", bytes=1e4), device) == pytest.approx(1e-5)
    assert kernel_time(MemoryBound(name="two", bytes=2e4, launches=2), device) == pytest.approx(
        2e-5
    )
    assert kernel_time(MemoryBound(name="small", bytes=10.0), device) == pytest.approx(1e-6)
    assert kernel_time(MemoryBound(name="large", bytes=1e6), device) == pytest.approx(1e-3)


def test_a_kind_of_its_own_is_known_by_the_last_words_of_its_name(folder: Path) -> None:
    gelu = MemoryBound(name="transform gelu", bytes=1e5, launches=8)
    assert kernel_time(gelu, measured()) == pytest.approx(9e-4)


def test_a_profile_refines_the_rates_of_its_device(folder: Path) -> None:
    changed = topologies.load("dgx-a100-hdr", {"device.profile": "mine"}).device
    assert changed.gemm.prologue == 7e-6
    overridden = {"device.profile": "mine", "device.gemm.prologue": "9 us"}
    assert topologies.load("dgx-a100-hdr", overridden).device.gemm.prologue == 9e-6


def test_kept_out_kernels_are_not_used() -> None:
    def modelled(kernel: Kernel) -> float:
        return 5.0

    measured = Measurement(kernel=PRODUCT, seconds=1.0, kept_out=True)
    origin = Origin(device="d", measurements="m.csv")
    assert Calibrated(Profile(origin=origin, measurements=(measured,)), modelled)(PRODUCT) is None
    used = Profile(origin=origin, measurements=(replace(measured, kept_out=False),))
    known = Calibrated(used, modelled)(PRODUCT)
    assert known is not None
    assert known.seconds == 1.0


def test_a_smooth_field_scales_with_the_model() -> None:
    """Twice as slow as modelled at two shapes: about twice as slow between them."""

    def modelled(kernel: Kernel) -> float:
        return kernel.bytes

    shapes = [replace(PRODUCT, m=m) for m in (512, 2048)]
    origin = Origin(
        device="d",
        measurements="m.csv",
        smoothness={"gemm": Smoothness(length=3.0, amplitude=0.5, noise=0.01)},
    )
    measurements = tuple(Measurement(kernel=shape, seconds=2 * shape.bytes) for shape in shapes)
    between = replace(PRODUCT, m=1024)
    known = Calibrated(Profile(origin=origin, measurements=measurements), modelled)(between)
    assert known is not None
    assert known.seconds == pytest.approx(2 * between.bytes, rel=0.1)


def test_rows_are_read_as_they_were_written() -> None:
    attention = Attention(
        name="", batch=1, heads=8, kv_heads=2, q=64, kv=64, head=80, causal=False, backward=True
    )
    for kernel in (
        replace(PRODUCT, name="wgrad", accumulate=True),
        attention,
        MemoryBound(name="norm grad", bytes=4096.0),
    ):
        measured = Measurement(kernel=kernel, seconds=1.25e-4, spread=0.02, kept_out=True)
        assert measurements.measurement(measurements.row(measured)) == measured


@pytest.mark.parametrize(
    "row",
    [
        "gemm,,forward,512,256,128,1,,,,,,maybe,bf16,,1e-3,0.01,false",
        "stream,gelu,,,,,,,,,,,,,8,-1,0,false",
        "stream,gelu,,,,,,,,,,,,,8,nan,0,false",
        "stream,gelu,,,,,,,,,,,,,8,1e-6,nan,false",
        "stream,gelu,,,,,,,,,,,,,8,1e-6,0,maybe",
        "copy,,,,,,,,,,,,,,,1e-6,0,false",
    ],
)
def test_a_bad_line_is_named(folder: Path, row: str) -> None:
    (folder / "mine.csv").write_text(HEADER + ROWS + row + "\n")
    with pytest.raises(InputError, match=r"mine.csv, line 8: is not a measured kernel"):
        profiles.load("mine")


@pytest.mark.parametrize("cut", [1, 2, 9, 30, len(ROWS.splitlines()[-1])])
def test_a_table_cut_within_a_row_or_at_its_end_is_refused(folder: Path, cut: int) -> None:
    (folder / "mine.csv").write_text((HEADER + ROWS)[:-cut])
    with pytest.raises(InputError, match=r"mine.csv, line 7: is cut short"):
        profiles.load("mine")


def test_a_table_cut_between_two_rows_is_refused_by_their_number(folder: Path) -> None:
    (folder / "mine.csv").write_text(HEADER + ROWS[: ROWS.rstrip().rindex("\n") + 1])
    with pytest.raises(InputError, match=r"samples = 6, but mine.csv has 5 kernels"):
        profiles.load("mine")


def test_a_table_that_is_no_text_is_named(folder: Path) -> None:
    (folder / "mine.csv").write_bytes(b"\x93\x8d\x00")
    with pytest.raises(InputError, match=r"mine.csv: is not UTF-8 text"):
        profiles.load("mine")


def test_a_missing_table_is_named(folder: Path) -> None:
    (folder / "mine.csv").unlink()
    with pytest.raises(InputError, match=r"mine.toml: mine.csv is not beside it"):
        profiles.load("mine")


def test_a_newer_format_is_refused_in_one_line(folder: Path) -> None:
    (folder / "mine.toml").write_text(TOML.replace("format = 1", "format = 2"))
    with pytest.raises(InputError, match="format = 2 is newer than this program reads"):
        profiles.load("mine")


def test_a_profile_of_a_busy_machine_says_so_in_every_run_that_uses_it(folder: Path) -> None:
    scattered = '\n[[residuals]]\nkind = "gemm"\nshapes = 4\nmedian = 0.3\np95 = {}\n'
    scattered += "bias = 0\nsigma = 1\n"
    job = {
        "model": "gpt2-124m", "topology": "dgx-a100-hdr", "gpus": 8,
        "plan": {"global_batch": 8}, "change": {"device.profile": "mine"},
    }  # fmt: skip
    said = "kernels of class gemm err by 120% (95th percentile); measured on a busy machine?"
    for p95, warned in ((0.9, False), (1.2, True)):
        (folder / "mine.toml").write_text(TOML + scattered.format(p95))
        warnings = run(described(copy.deepcopy(job))).warnings
        assert any(said in warning for warning in warnings) == warned
