"""Matrix products: tiles, waves, power, memory."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.config.errors import InputError
from sim.hardware.kernels.rates import GemmRates, Shares, gemm_time
from sim.model.kernels import Gemm

# A device of 10 SMs whose tiles all run at the same rate and cost nothing to start.
PLAIN = GemmRates(
    full=Shares(bf16=1.0, fp32=1.0),
    half_tile=1.0,
    quarter_tile=1.0,
    prologue=0.0,
    epilogue=0.0,
    floor=0.0,
)
PEAK, SMS, FAST_MEMORY = 1e12, 10, 1e18


def seconds(gemm: Gemm, rates: GemmRates = PLAIN, bandwidth: float = FAST_MEMORY) -> float:
    return gemm_time(gemm, rates, peak=PEAK, sms=SMS, bandwidth=bandwidth)


def product(m: int, n: int, k: int, **more: object) -> Gemm:
    return Gemm(name="product", m=m, n=n, k=k, **more)  # type: ignore[arg-type]


def test_full_waves_run_at_the_full_rate() -> None:
    whole = product(2560, 128, 128)  # ten tiles of 256 x 128, one for each SM
    assert seconds(whole) == pytest.approx(whole.flops / PEAK)


def test_reading_as_long_as_multiplying_costs_a_fifth() -> None:
    whole = product(2560, 128, 128)
    alone = whole.flops / PEAK
    assert seconds(whole, bandwidth=whole.bytes / alone) == pytest.approx(alone * 2 ** (1 / 4))


def test_one_more_row_of_tiles_costs_a_wave() -> None:
    full, more = product(64 * 10, 64, 128), product(64 * 10 + 1, 64, 128)
    assert seconds(more) > 1.5 * seconds(full)
    # Persistent CTAs deal the last wave's tiles out.
    even = replace(PLAIN, persistent=1.0)
    assert seconds(more, even) < 1.2 * seconds(full, even)
    assert seconds(more, even) < seconds(more, replace(PLAIN, persistent=0.5)) < seconds(more)


def test_split_k_fills_the_sms_of_a_small_result() -> None:
    long, short = product(64, 64, 10 * 1024), product(64, 64, 255)
    assert seconds(long) / long.flops < 0.3 * seconds(short) / short.flops


def test_thin_products_are_bound_by_memory() -> None:
    thin = product(4096, 4096, 16)
    assert seconds(thin, bandwidth=1e9) == pytest.approx(thin.bytes / 1e9)


def test_accumulation_reads_and_writes_fp32() -> None:
    rates = replace(PLAIN, epilogue=0.5, accumulation=1.0)
    plain = seconds(product(512, 512, 512), rates, bandwidth=1e10)
    added = seconds(product(512, 512, 512, accumulate=True), rates, bandwidth=1e10)
    assert added - plain >= 512 * 512 * 7 / 1e10 * 0.99


def test_small_tiles_cost_nothing_extra_in_fp32() -> None:
    rates = replace(PLAIN, half_tile=0.5, quarter_tile=0.25)
    narrow = product(6400, 64, 1024, precision="fp32")
    assert seconds(narrow, rates) == pytest.approx(seconds(narrow))
    assert seconds(replace(narrow, precision="bf16"), rates) > 1.8 * seconds(narrow)


def test_a_precision_without_a_share_is_named() -> None:
    with pytest.raises(InputError, match="no share for fp8"):
        Shares(bf16=0.5).of("fp8")


@pytest.mark.parametrize("share", [0.0, -0.1, 1.3, float("nan")])
def test_a_share_outside_of_its_range_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="outside"):
        Shares(bf16=share)


sizes = st.integers(1, 4096)


@given(sizes, sizes, sizes, st.integers(1, 64))
def test_never_faster_than_the_roofline(m: int, n: int, k: int, batch: int) -> None:
    gemm = product(m, n, k, batch=batch)
    bound = max(gemm.flops / PEAK, gemm.bytes / 1e11)
    assert seconds(gemm, bandwidth=1e11) >= bound * (1 - 1e-12)


@given(sizes, sizes, sizes, st.integers(1, 8))
def test_a_longer_k_is_never_faster_without_split_k(m: int, n: int, k: int, more: int) -> None:
    short, long = product(m, n, k % 256 + 1), product(m, n, k % 256 + 1 + more)
    assert seconds(long) >= seconds(short)


@given(sizes, sizes, sizes)
def test_more_batches_are_never_faster(m: int, n: int, k: int) -> None:
    assert seconds(product(m, n, k, batch=2)) >= seconds(product(m, n, k))


def test_batches_whose_rows_are_not_aligned_run_without_tensor_cores() -> None:
    aligned, odd = (product(2048, 2048, k, batch=16) for k in (152, 150))
    assert seconds(odd) / odd.flops == pytest.approx(4 * seconds(aligned) / aligned.flops, rel=0.01)
    assert seconds(product(2048, 2048, 150)) < seconds(product(2048, 2048, 152))


def test_single_products_lose_them_only_where_the_device_does() -> None:
    volta = replace(PLAIN, misaligned=0.25)
    vocabulary = product(4096, 50257, 4096)
    assert seconds(vocabulary, volta) == pytest.approx(4 * seconds(vocabulary), rel=0.01)
    padded = product(4096, 50304, 4096)
    assert seconds(padded, volta) == seconds(padded)
