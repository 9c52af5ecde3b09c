"""Devices: data sheets agree with what the silicon can do, and bad ones are refused."""

from dataclasses import replace
from pathlib import Path

import pytest

from sim.config import catalog
from sim.config.errors import InputError
from sim.hardware import device
from sim.hardware.kernels.time import kernel_time
from sim.model.kernels import Gemm, Precision

TPUS = [name for name in catalog.names("topologies/devices") if name.startswith("tpu")]
OTHERS = [*TPUS, "cpu"]  # a CPU has no data sheet here: its profile brings the figures
NAMES = [name for name in catalog.names("topologies/devices") if name not in OTHERS]

# Matrix FLOPs of one SM in a clock, 16-bit operands, from the architecture white papers.
PER_CLOCK = {
    "volta": 1024,
    "ampere": 2048,
    "ada": 1024,
    "hopper": 4096,
    "blackwell": 8192,
    "cdna3": 2048,
    "cdna4": 4096,
}
NARROW = {"a40-48gb-pcie": 1024, "h20-sxm": 1024}  # Ampere's other chip; a Hopper cut to a quarter


@pytest.mark.parametrize("name", NAMES)
def test_peak_is_sms_times_clock_times_flops_per_clock(name: str) -> None:
    d = device.load(name)
    per_clock = NARROW.get(name, PER_CLOCK[d.generation])
    assert d.peak_rate("fp16") == pytest.approx(d.sms * d.clock * per_clock, rel=0.01)


def test_less_power_is_never_faster_and_too_little_is_refused() -> None:
    h100 = device.load("h100-80gb-sxm")
    product = Gemm(name="product", m=8192, n=8192, k=8192)
    watts = (210.0, 300.0, 500.0, 700.0, 2000.0)
    times = [kernel_time(product, replace(h100, power=power)) for power in watts]
    assert times == sorted(times, reverse=True)
    assert times[-1] == kernel_time(product, h100.in_bursts())
    with pytest.raises(ValueError, match="power must exceed"):
        replace(h100, power=200.0)


def test_more_boards_never_hold_a_higher_clock_and_one_holds_the_mean() -> None:
    h100 = device.load("h100-80gb-sxm")
    clocks = [h100.among(boards).held_clock("bf16") for boards in (1, 2, 8, 1024, 10**6)]
    assert h100.draw is not None
    assert clocks[0] == h100.held_clock("bf16")
    assert clocks == sorted(clocks, reverse=True)
    assert clocks[-1] > 0.9 * clocks[0]
    assert clocks[2] == pytest.approx(clocks[0] * (1 - 1.42 * h100.draw.spread), rel=1e-3)
    alike = replace(h100, draw=replace(h100.draw, spread=0.0))
    assert alike.among(1024).held_clock("bf16") == clocks[0]
    assert h100.among(1024).held_clock("fp32") == 1.0, "without a limit boards are alike"


@pytest.mark.parametrize("name", TPUS)
def test_a_tpu_is_matrix_units_of_128_by_128_at_its_clock(name: str) -> None:
    d = device.load(name)
    assert d.peak_rate("bf16") == pytest.approx(d.sms * d.clock * 2 * 128 * 128, rel=0.01)
    assert d.peak_rate("tf32") == d.peak_rate("bf16"), "fp32 operands are rounded on their way in"


@pytest.mark.parametrize("name", NAMES)
def test_usable_memory_is_close_below_the_size_on_the_box(name: str) -> None:
    d = device.load(name)
    on_the_box = {"16GB": 16, "32GB": 32, "40GB": 40, "80GB": 80, "96GB": 96, "H200": 141}
    on_the_box |= {"48GB": 48, "MI300X": 192, "MI325X": 256, "MI35": 288, "B300": 288}
    on_the_box |= {"GB200": 192, "GB300": 288}
    size = next((gb for text, gb in on_the_box.items() if text in d.name), 180)
    assert size * 1e9 * 0.97 < d.memory < size * 2**30
    assert 0.5 * 2**30 <= d.memory - d.usable_memory <= 2 * 2**30


# TFLOP/s of the best of all shapes tried: stas00/ml-engineering, compute/accelerator/README.md;
# V100: DeepBench; A40: microsoft/vidur.
BEST = {
    ("a100-80gb-sxm", "bf16"): 271.2,
    ("a100-80gb-pcie", "bf16"): 252.9,
    ("h100-80gb-sxm", "bf16"): 794.5,
    ("h100-80gb-sxm", "fp8"): 1402.6,
    ("h200-sxm", "fp8"): 1453.4,
    ("b200-sxm", "bf16"): 1745.0,
    ("b200-sxm", "fp8"): 3432.5,
    ("gb200", "bf16"): 1822.0,
    ("gb200", "fp8"): 3615.6,
    ("b300-sxm", "fp8"): 3353.3,
    ("mi325x", "bf16"): 784.9,
    ("v100-32gb-sxm", "fp16"): 107.7,
    ("a40-48gb-pcie", "fp16"): 133.8,
}


@pytest.mark.parametrize(("name", "precision"), BEST)
def test_large_products_sustain_less_than_the_best_that_was_measured(
    name: str, precision: Precision
) -> None:
    large = Gemm(name="", m=16384, n=16384, k=16384, precision=precision)
    rate = large.flops / kernel_time(large, device.load(name)) / 1e12
    assert 0.55 * BEST[name, precision] < rate < BEST[name, precision]


@pytest.mark.parametrize("name", NAMES)
def test_halving_the_operands_doubles_the_rate(name: str) -> None:
    d = device.load(name)
    if d.generation != "volta":
        assert d.peak_rate("bf16") == d.peak_rate("fp16")
    if d.generation not in ("volta", "cdna4"):  # CDNA 4 has no tf32 of its own
        assert d.peak_rate("fp16") == pytest.approx(2 * d.peak_rate("tf32"), rel=1e-3)
    if "fp8" in d.peak.known:
        assert d.peak_rate("fp8") == pytest.approx(2 * d.peak_rate("fp16"), rel=1e-3)


# Published figures: NVIDIA's data sheets (TFLOP/s dense 16-bit, GB/s of memory).
@pytest.mark.parametrize(
    ("name", "tflops", "bandwidth"),
    [
        ("a100-80gb-sxm", 312, 2.0e12),
        ("a100-80gb-pcie", 312, 1.94e12),
        ("a100-40gb-sxm", 312, 1.555e12),
        ("h100-80gb-sxm", 989, 3.35e12),
        ("h200-sxm", 989, 4.8e12),
        ("h20-sxm", 148, 4.0e12),
        ("b200-sxm", 2250, 8.0e12),
        ("v100-32gb-sxm", 125, 0.9e12),
        ("h800-80gb-sxm", 989, 3.35e12),
        ("b300-sxm", 2250, 8.0e12),
        ("gb200", 2500, 8.0e12),
        ("gb300", 2500, 8.0e12),
        ("l40s", 362, 0.864e12),
        ("mi300x", 1307, 5.3e12),
        ("mi325x", 1307, 6.0e12),
        ("mi350x", 2307, 8.0e12),
        ("mi355x", 2517, 8.0e12),
    ],
)
def test_rates_equal_the_data_sheets(name: str, tflops: float, bandwidth: float) -> None:
    d = device.load(name)
    assert d.peak_rate("fp16") == pytest.approx(tflops * 1e12, rel=0.001)
    assert d.memory_bandwidth == pytest.approx(bandwidth, rel=0.05)


def test_volta_has_no_bf16() -> None:
    with pytest.raises(InputError, match=r"V100 16GB SXM2 has no bf16; it has fp32, fp16"):
        device.load("v100-16gb-sxm").peak_rate("bf16")


def test_a_precision_that_is_no_field_of_the_device_is_refused() -> None:
    with pytest.raises(InputError, match="has no known"):
        device.load("v100-16gb-sxm").peak_rate("known")


@pytest.fixture
def text() -> str:
    return catalog.find("topologies/devices", "a100-80gb-sxm").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('memory = "79.15 GiB"', "memory = 80", "memory: 80 has no unit"),
        ('memory = "79.15 GiB"', 'memory = "79.15 GHz"', "is in 'GHz', not in B"),
        ('memory = "79.15 GiB"', 'memory = "1 GiB"', "reserve must be smaller than memory"),
        ("sms = 108", "sms = 0", "sms = 0 must be positive"),
        ("sms = 108", "sm = 108", "unknown key 'sm'; did you mean 'sms'"),
        ("sms = 108", "", "sms is missing"),
        ('fp16 = "312 TFLOP/s"', 'fp16 = "-312 TFLOP/s"', "must be a finite positive number"),
        ('fp16 = "312 TFLOP/s"', "fp16 = nan", "finite"),
        ('generation = "ampere"', 'generation = "turing"', "generation"),
    ],
)
def test_a_bad_file_names_its_fault(
    text: str, old: str, new: str, message: str, tmp_path: Path
) -> None:
    assert old in text
    path = tmp_path / "bad.toml"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(InputError) as caught:
        device.load(str(path))
    assert str(path) in str(caught.value)
    assert message in str(caught.value)
