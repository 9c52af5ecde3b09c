"""Gist's encodings of feature maps: closed forms, laws, and what its paper reports."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.config.errors import InputError
from sim.kind import load
from sim.model.kernels import BYTES
from sim.model.stash import Map, Stash, kept
from sim.results.result import Result
from sim.scenario.setup import from_scenario
from sim.simulate import answer

SPARSITY = 0.62  # of ReLU results, Rhu et al. 2018 (cDMA)
LOSSLESS = Stash(sparsity=SPARSITY)


def test_a_relu_before_a_pooling_is_kept_as_one_bit_a_value_and_the_places_as_four():
    assert kept(Map(4096, "signs"), 4, LOSSLESS).bytes == 4096 * 4 / 32
    assert kept(Map(1024, "places"), 4, LOSSLESS).bytes == 1024 / 2
    assert kept(Map(1024, "places"), 4, None).bytes == 0, "pooling then reads its whole input"


@given(st.floats(0.0, 0.99), st.sampled_from([4, 2]), st.sampled_from([1, 4]))
def test_rows_of_256_columns_take_a_byte_a_column_and_pay_above_a_fifth_of_zeros(s, width, window):
    """Gist, section 4.2: n (1 - s) (w + 1) + 4 n / 256 instead of n w; of fp32 values from 20 % on
    (1/5 + 1/320 with the rows' own pointers), where indices of 4 bytes would take half."""
    one = Map(2560.0, "sparse", window)
    rows = 2560 * (1 - s**window) * (width + 1) + 10 * 4
    assert kept(one, width, Stash(sparsity=s)).bytes == pytest.approx(min(rows, 2560 * width))
    if window == 1 and width == 4:
        smaller = bool(kept(one, width, Stash(sparsity=s)).encode)
        assert smaller == (s > 1 / 5 + 1 / 320)


@pytest.mark.parametrize(("bits", "each"), [(16, 2), (10, 4 / 3), (8, 1)])
def test_delayed_precision_keeps_values_in_16_10_or_8_bits(bits, each):
    """Section 4.3: three values of 10 bits in a word; of sparse rows the values only."""
    narrow = Stash(bits=bits, sparsity=0.5)
    assert kept(Map(900), 4, narrow).bytes == pytest.approx(900 * each)
    rows = min(2560 * 0.5 * (each + 1) + 40, 2560 * each)
    assert kept(Map(2560, "sparse"), 4, narrow).bytes == pytest.approx(rows)


@given(
    st.floats(1, 1e9),
    st.sampled_from(["values", "sparse", "signs"]),
    st.sampled_from([2, 4]),
    st.booleans(),
    st.sampled_from([32, 16, 10, 8]),
    st.floats(0, 0.99),
)
def test_what_is_encoded_is_never_larger_and_costs_its_kernels(n, reads, width, exact, bits, s):
    stash = Stash(lossless=exact or bits == 32, bits=bits, sparsity=s)
    own = kept(Map(n, reads), width, stash)
    assert own.bytes <= n * width
    assert bool(own.encode) == (own.bytes < n * width)
    moved = sum(kernel.bytes for kernel in (*own.encode, *own.decode))
    assert moved >= (n * width + own.bytes) * bool(own.encode)


def trained(model: str, stash: Stash | None) -> Result:
    scenario = load("vgg16-gist", {"model": model})
    return answer(from_scenario(replace(scenario, plan=replace(scenario.plan, stash=stash))))


@pytest.mark.parametrize("model", ["vgg16", "resnet50"])
def test_encodings_save_about_what_the_paper_reports_and_cost_time(model):
    """Jain et al. 2018, abstract and section 5: 1.4 times less memory on average without loss, 1.8
    times and up to twice with fp16 and narrower, for 4 % of time (on a Titan X, whose products are
    slower than a V100's against its memory)."""
    plain = trained(model, None)
    exact = trained(model, LOSSLESS)
    lossy = trained(model, replace(LOSSLESS, bits=16))
    totals = [own.memory_per_gpu["total"] for own in (plain, exact, lossy)]
    assert 1.2 < totals[0] / totals[1] < 1.6
    assert 1.3 < totals[0] / totals[2] < 2.3
    assert 1.0 < exact.step_time / plain.step_time < 1.08
    assert 1.0 < lossy.step_time / plain.step_time < 1.15
    assert totals[2] <= totals[1] <= totals[0]


def test_a_vgg_layer_before_a_pooling_keeps_bits_and_places_and_what_pooling_makes():
    scenario = load("vgg16-gist")
    job = from_scenario(replace(scenario, plan=replace(scenario.plan, stash=LOSSLESS))).job
    width, n = BYTES["fp32"], 64 * 64 * 224**2  # second layer of the first stage
    pooled = n / 4
    rows = pooled * (1 - SPARSITY**4) * (width + 1) + pooled / 256 * 4
    expected = n / 8 + pooled / 2 + min(rows, pooled * width)
    assert job.block(job.chunks[0][0].kinds[1]).saved == pytest.approx(expected)


@pytest.mark.parametrize(
    ("model", "said"),
    [("gpt2-124m", "keep feature maps, but this model has no such maps"),
     ("gnmt-v100", "keep feature maps, but this model has no such maps")],
)  # fmt: skip
def test_models_without_feature_maps_are_refused(model, said):
    with pytest.raises(InputError, match=said):
        from_scenario(load("vgg16-gist", {"model": model}))
