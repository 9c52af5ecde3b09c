"""Kernel times on the devices of the library, against what is published of them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.config import catalog
from sim.config.errors import InputError
from sim.hardware import device as devices
from sim.hardware.device import Device
from sim.hardware.kernels.fused_attention import attention_time, offered_rates, share
from sim.hardware.kernels.rates import AttentionRates
from sim.hardware.kernels.time import kernel_time
from sim.model.casts import CASTING
from sim.model.kernels import JOINED, TORCH_NORM, Attention, Gemm, MemoryBound

# Best achieved dense rate (TFLOP/s): stas00/ml-engineering, MAMF tables (gpu_peaks.csv).
BEST = {
    "a100-80gb-sxm": 271.2,
    "a100-80gb-pcie": 252.9,
    "h100-80gb-sxm": 794.5,
    "h200-sxm": 794.5,
    "b200-sxm": 1745.0,
}


def device(name: str) -> Device:
    return devices.load(name)


def attention(**given: object) -> Attention:
    shape: dict[str, object] = {
        "name": "attention",
        "batch": 4,
        "heads": 32,
        "kv_heads": 32,
        "q": 4096,
        "kv": 4096,
        "head": 128,
        "causal": True,
    }
    return Attention(**{**shape, **given})  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "best"), BEST.items())
def test_no_product_beats_the_best_that_was_measured(name: str, best: float) -> None:
    rates = []
    for m, n, k in ((4096, 4096, 4096), (8192, 8192, 8192), (16384, 12288, 4096)):
        gemm = Gemm(name="product", m=m, n=n, k=k)
        rates.append(gemm.flops / kernel_time(gemm, device(name)) / 1e12)
    assert 0.5 * best < max(rates) <= best


@pytest.mark.parametrize("name", catalog.names("topologies/devices"))
def test_every_device_times_every_kind_of_kernel(name: str) -> None:
    tested = device(name)
    half = "fp16" if "fp16" in tested.peak.known else "bf16"
    for kernel in (
        Gemm(name="product", m=1024, n=1024, k=1024, precision=half),
        MemoryBound(name="add", bytes=1e8),
        attention(precision=half),
    ):
        assert 0 < kernel_time(kernel, tested, tuple(tested.attention)) < 10  # a CPU takes seconds


@pytest.mark.parametrize(("n", "rate"), [(8192, 97.36e12), (10240, 89.37e12)])
def test_v100_multiplies_as_fast_as_torch_was_measured_there(n: int, rate: float) -> None:
    # zzc0721/torch-performance-test-data, issue 140.
    gemm = Gemm(name="product", m=n, n=n, k=n, precision="fp16")
    assert gemm.flops / kernel_time(gemm, device("v100-32gb-sxm")) == pytest.approx(rate, rel=0.08)


@pytest.mark.parametrize(
    ("name", "generation", "low", "high"),
    [
        ("a100-80gb-sxm", "flash2", 170e12, 210e12),  # Dao 2023, figure 5, causal, head 128
        ("h100-80gb-sxm", "flash2", 300e12, 400e12),  # Shah et al. 2024, figure 5
        ("h100-80gb-sxm", "flash3", 500e12, 650e12),  # the same
    ],
)
def test_attention_forward_runs_at_its_generation_s_rate(
    name: str, generation: str, low: float, high: float
) -> None:
    kernel = attention()
    assert low < kernel.flops / kernel_time(kernel, device(name), (generation,)) < high


def test_a_later_generation_is_taken_where_the_device_has_it() -> None:
    hopper, ampere = device("h100-80gb-sxm"), device("a100-80gb-sxm")
    assert offered_rates(hopper, ("flash3", "flash2")) is hopper.attention["flash3"]
    assert offered_rates(ampere, ("flash3", "flash2")) is ampere.attention["flash2"]
    with pytest.raises(InputError, match="runs none of flash3; it knows flash1, flash2"):
        offered_rates(ampere, ("flash3",))
    with pytest.raises(InputError, match="runs none of flash2; it knows none"):
        offered_rates(replace(ampere, attention={}), ("flash2",))


def test_a_precision_that_the_device_lacks_is_refused() -> None:
    with pytest.raises(InputError, match="has no fp8"):
        kernel_time(Gemm(name="p", m=8, n=8, k=8, precision="fp8"), device("a100-80gb-sxm"))


def test_few_heads_leave_sms_idle() -> None:
    rates = AttentionRates(forward={128: 0.5}, backward={128: 0.5}, tail=0.0)
    single = attention(batch=1, heads=1, causal=False, q=128, kv=128)
    alone = attention_time(single, rates, peak=1e14, sms=100, bandwidth=1e15)
    full = attention_time(replace(single, heads=100), rates, peak=1e14, sms=100, bandwidth=1e15)
    assert alone == pytest.approx(full) == pytest.approx(single.flops / (0.5e14 / 100))


def test_a_head_between_two_sizes_is_padded_to_a_multiple_of_32_and_interpolated() -> None:
    rates = AttentionRates(forward={64: 0.4, 128: 0.6}, backward={64: 0.3, 128: 0.5})
    assert share(rates, 96, backward=False) == pytest.approx(0.5)
    assert share(rates, 72, backward=False) == pytest.approx(0.5 * 72 / 96)
    assert share(rates, 64, backward=True) == 0.3
    assert share(rates, 256, backward=False) == 0.6


@pytest.mark.parametrize(("backward", "microseconds"), [(False, 1234.5), (True, 4310.5)])
def test_latent_attention_takes_what_deepseek_s_profile_shows(backward, microseconds) -> None:
    # deepseek-ai/profile-data, train.json: FlashAttention-3 on 4,096 tokens of 128 heads on the 112
    # of 132 SMs that communication leaves; backward with its preparation and the conversion of dQ.
    core = Attention(
        name="attention", batch=1, heads=128, kv_heads=128, q=4096, kv=4096, head=192,
        value_head=128, causal=True, backward=backward,
    )  # fmt: skip
    seconds = kernel_time(core, device("h800-80gb-sxm").without(20), ("flash3",))
    assert seconds == pytest.approx(microseconds * 1e-6, rel=0.1)


@pytest.mark.parametrize(
    ("m", "n", "k", "groups", "tflops"),
    [
        (7168, 2112, 4096, 1, 920), (1536, 24576, 4096, 1, 986), (512, 32768, 4096, 1, 878),
        (16384, 7168, 4096, 1, 994), (7168, 4096, 4096, 1, 942), (2048, 7168, 4096, 1, 920),
        (7168, 2112, 8192, 1, 1052), (1536, 24576, 8192, 1, 1092), (512, 32768, 8192, 1, 1014),
        (7168, 4096, 4096, 4, 939), (2048, 7168, 4096, 4, 900), (7168, 4096, 8192, 4, 1044),
        (2048, 7168, 8192, 4, 1033), (7168, 4096, 4096, 8, 942),
    ],
)  # fmt: skip
def test_gradients_of_weights_in_eight_bits_take_what_deepgemm_s_kernels_take(
    m, n, k, groups, tflops
) -> None:
    """DeepGEMM, pull request 95: on H800, scales of 1 x 128 on both sides, sums in fp32."""
    gemm = Gemm(
        name="wgrad", m=m, n=n, k=k, batch=groups, precision="fp8", accumulate=True, accumulator=4
    )
    rate = gemm.flops / kernel_time(gemm, device("h800-80gb-sxm"))
    assert rate == pytest.approx(tflops * 1e12, rel=0.11)


def test_sms_that_are_set_aside_are_missing_to_products_and_not_to_memory() -> None:
    whole = device("h800-80gb-sxm")
    left = whole.without(whole.sms // 2)
    large = Gemm(name="product", m=16384, n=16384, k=16384)
    stream = MemoryBound(name="copy", bytes=1e9)
    assert kernel_time(large, left) == pytest.approx(2 * kernel_time(large, whole), rel=0.02)
    assert kernel_time(stream, left) == kernel_time(stream, whole)
    assert whole.without(0) is whole


def test_small_kernels_cost_their_floor() -> None:
    a100 = device("a100-80gb-sxm")
    assert kernel_time(MemoryBound(name="nothing", bytes=0.0, launches=3), a100) == pytest.approx(
        3 * (a100.stream.floor + a100.stream.gap)
    )


@given(st.floats(1.0, 1e10), st.floats(1.0, 1e10), st.integers(1, 20))
def test_more_bytes_or_more_launches_are_never_faster(a: float, b: float, launches: int) -> None:
    a100 = device("a100-80gb-sxm")
    few, many = sorted((a, b))
    slow = kernel_time(MemoryBound(name="s", bytes=many, launches=launches), a100)
    assert kernel_time(MemoryBound(name="s", bytes=few, launches=launches), a100) <= slow
    assert kernel_time(MemoryBound(name="s", bytes=many), a100) <= slow


def test_a_device_of_the_same_name_with_other_rates_has_its_own_times() -> None:
    a100 = device("a100-80gb-sxm")
    slower = replace(a100, memory_bandwidth=a100.memory_bandwidth / 2)
    add = MemoryBound(name="add", bytes=1e9)
    assert kernel_time(add, slower) > 1.9 * kernel_time(add, a100)


def test_dropout_is_bound_by_its_random_numbers() -> None:
    a100 = device("a100-80gb-sxm")
    drop = MemoryBound(name="dropout", bytes=5e9, randoms=1e9)
    assert kernel_time(drop, a100) == pytest.approx(1e9 / (108 * 64 * 1.41e9 / 40), rel=1e-3)
    assert kernel_time(replace(drop, randoms=0.0), a100) < 0.9 * kernel_time(drop, a100)


QWEN, TIMESFORMER = 16 * 559 * 1024, 8 * 3137 * 768  # elements of traces/tracelens


@pytest.mark.parametrize(
    ("on", "elements", "places", "measured"),
    [
        ("h800-80gb-sxm", 65536 * 512, 1.0, 84.5e-6),  # deepseek_v3_train_profile.csv
        ("h100-80gb-sxm", QWEN, 1.0, 29.3e-6),  # heads brought together
        ("h100-80gb-sxm", QWEN, 1.0, 25.1e-6),  # times a row of gains
        ("h100-80gb-sxm", QWEN, JOINED, 42.0e-6),  # halves joined
        ("h100-80gb-sxm", TIMESFORMER, 1.0, 58.5e-6),
        ("h100-80gb-sxm", TIMESFORMER, JOINED, 71.5e-6),
        ("a100-80gb-sxm", 4 * 16 * 1024 * 1024, 1.0, 323e-6),  # estimate_train_time, fillmask
    ],
)
def test_elements_whose_places_are_computed_take_longer_than_their_bytes(
    on: str, elements: int, places: float, measured: float
) -> None:
    """16 bits read and written, of which half the time would be enough for the bytes."""
    copy = MemoryBound(name="copy", bytes=4.0 * elements, strided=places * elements)
    assert kernel_time(copy, device(on)) == pytest.approx(measured, rel=0.16)
    assert kernel_time(replace(copy, strided=0.0), device(on)) < 0.7 * kernel_time(copy, device(on))


@pytest.mark.parametrize(
    ("on", "name", "bytes", "rate", "measured"),
    [
        ("a100-80gb-sxm", "16384 x 6656 forward", 4 * 109.05e6, TORCH_NORM[0], 409.4e-6),
        ("a100-80gb-sxm", "16384 x 6656 back", 10 * 109.05e6, TORCH_NORM[1], 1312.2e-6),
        ("a100-80gb-sxm", "16384 x 4608 back", 10 * 75.5e6, TORCH_NORM[1], 942.4e-6),
        ("h800-80gb-sxm", "cast of 4096 x 7168", 3 * 29.36e6, CASTING, 41e-6),
        ("h800-80gb-sxm", "cast of 24576 x 4096", 3 * 100.7e6, CASTING, 120e-6),
        ("h800-80gb-sxm", "cast of 34688 x 7168", 3 * 248.6e6, CASTING, 299e-6),
    ],
)
def test_norms_of_torch_and_casts_take_longer_than_their_bytes(
    on: str, name: str, bytes: float, rate: float, measured: float
) -> None:
    """LayerNorm in fp16 (kernels/estimate_train_time, Perlmutter) and casts that transpose to eight
    bits (deepseek_v3_train_profile.csv, per_channel_cast_and_transpose)."""
    kernel = MemoryBound(name=name, bytes=bytes, rate=rate)
    assert kernel_time(kernel, device(on)) == pytest.approx(measured, rel=0.1)
    assert kernel_time(replace(kernel, rate=1.0), device(on)) < 0.9 * measured
