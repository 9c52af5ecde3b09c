"""Intervals: narrow with measured runs, wide without any, shifted by a known bias."""

import math

import pytest

import sim
from sim.uncertainty.evidence import Evidence, Spread, evidence
from sim.uncertainty.intervals import Kernels, Sigmas

BROAD = Sigmas(gemm=0.5)


def spread(stack="a", device="x", rows=100, median=0.0, sigma=0.05, table="t") -> Spread:
    return Spread(
        table=table, stack=stack, device=device, rows=rows, median=median, sigma=sigma
    )  # fmt: skip


def three(**changes) -> Evidence:
    """Three stacks; changes are of the first."""
    others = (spread("b", median=0.10), spread("c", median=-0.15))
    return Evidence(spreads=(spread(**changes), *others))


def width(measured: Evidence, stack="a", device="x", kernels=None) -> float:
    interval = measured.interval(1.0, stack=stack, device=device, kernels=kernels)
    return math.log(interval.high / interval.low)


def test_many_runs_of_the_same_stack_and_device_give_their_own_spread():
    assert width(three(rows=10_000)) == pytest.approx(2 * 1.645 * 0.05, rel=0.01)


def test_fewer_runs_give_a_wider_interval():
    widths = [width(three(rows=rows)) for rows in (3, 10, 30, 1000)]
    assert widths == sorted(widths, reverse=True)


def test_tables_of_one_stack_and_device_that_disagree_widen_the_interval():
    def two(bias):
        tables = (spread(median=bias, table="t"), spread(median=-bias, table="u"))
        return Evidence(spreads=tables)

    assert width(two(0.2)) > 3 * width(two(0.0))


def test_a_stack_that_was_never_measured_is_less_sure_than_any_that_was():
    assert width(three(), "new") > 2 * width(three(), "a")


def test_a_new_device_of_a_measured_stack_lies_between():
    four = Evidence(spreads=(*three().spreads, spread("a", "y", median=0.06)))
    assert width(four, "a", "x") < width(four, "a", "z") < width(four, "new", "z")


def test_a_known_bias_moves_the_interval():
    moved = three(median=0.04).interval(10.0, stack="a", device="x")
    assert math.sqrt(moved.low * moved.high) == pytest.approx(10.0 * math.exp(0.04), rel=1e-6)


@pytest.mark.parametrize("bias", [-0.5, 0.5])
def test_the_prediction_is_within_whatever_the_bias(bias):
    interval = three(median=bias).interval(10.0, stack="a", device="x")
    assert interval.low <= 10.0 <= interval.high


def test_without_any_measured_run_there_is_an_interval_all_the_same():
    assert width(Evidence(spreads=())) > 0.0


def test_a_profile_that_knows_its_kernels_narrows_the_interval_and_a_bad_one_widens_it():
    shares = {"gemm": 0.5, "collective": 0.5}
    usual, good, bad = (
        width(three(sigma=0.1), kernels=Kernels.of(sigmas, shares))
        for sigmas in (Sigmas(), Sigmas(gemm=0.01), Sigmas(gemm=0.3))
    )
    assert good < usual < bad


def test_the_usual_errors_of_kernels_are_counted_once():
    kernels = Kernels.of(Sigmas(), {"gemm": 1.0})
    assert width(three(), kernels=kernels) == pytest.approx(width(three()))


def test_an_interval_is_never_narrower_than_the_kernels_it_rests_on():
    kernels = Kernels(sigma=0.04, usual=0.3, shares={})
    assert kernels.corrected(0.1**2) == pytest.approx(0.04**2)
    assert kernels.corrected(0.01**2) == pytest.approx(0.01**2)


def test_a_profile_replaces_only_the_classes_that_it_measured():
    mixed = Sigmas().replaced({"gemm": 0.02, "launch": 9.0})
    assert (mixed.gemm, mixed.host) == (0.02, Sigmas().host)


def test_a_result_carries_its_interval_and_names_its_basis():
    result = sim.run("gpt2-one-gpu")
    assert result.step_time_low < result.step_time < result.step_time_high
    assert result.interval["level"] == 0.9
    assert "measured runs" in result.interval["basis"]


def test_the_packaged_runs_are_of_every_stack_once_a_device():
    keys = [(spread.table, spread.stack, spread.device) for spread in evidence().spreads]
    assert len(keys) == len(set(keys)) > 15
