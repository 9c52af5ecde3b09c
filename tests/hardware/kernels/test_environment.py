"""The environment of kernels: a profile's launches, copies and slowdowns, as text and back."""

import random
import tomllib

import pytest

from sim.config.errors import InputError
from sim.config.schema import validate
from sim.hardware.kernels.environment import CopyTime, Environment, LaunchTimes, Slowdown
from sim.hardware.kernels.residuals import coverage

MEASURED = Environment(
    host=LaunchTimes(issue=4.1e-6, latency=7.9e-6, node=1.6e-6),
    copies=(
        CopyTime(kind="host to device", pinned=True, bytes=2.0**20, time=25e-6),
        CopyTime(kind="device to device", bytes=2.0**30, time=0.5e-3),
        CopyTime(kind="device to host", bytes=2.0**34, time=12.345),
    ),
    overlaps=(Slowdown(kernel="stream", beside="all_reduce", slowdown=1.25),),
)


def test_what_is_written_is_read_again() -> None:
    again = validate(tomllib.loads(MEASURED.toml()), Environment, "mine.toml")
    assert again.overlaps == MEASURED.overlaps
    assert again.host is not None
    assert MEASURED.host is not None
    assert again.host.issue == pytest.approx(MEASURED.host.issue)
    for copy, written in zip(again.copies, MEASURED.copies, strict=True):
        assert (copy.kind, copy.pinned) == (written.kind, written.pinned)
        assert copy.bandwidth == pytest.approx(written.bandwidth, rel=1e-3)


def test_nothing_measured_is_nothing_written() -> None:
    assert Environment().toml() == ""


@pytest.mark.parametrize("time", [0.0, -1.0, float("nan"), float("inf")])
def test_a_copy_takes_time(time: float) -> None:
    with pytest.raises(ValueError, match="is not a valid copy"):
        CopyTime(kind="device to device", bytes=8.0, time=time)


def test_a_slowdown_is_a_positive_number() -> None:
    for slowdown, said in ((float("nan"), "finite"), (0.0, "positive"), (-1.0, "positive")):
        with pytest.raises(InputError, match=said):
            validate({"kernel": "gemm", "beside": "copy", "slowdown": slowdown}, Slowdown, "it")


def test_times_of_a_busy_machine_are_written_without_an_exponent() -> None:
    text = Environment(host=LaunchTimes(issue=1.46e-3, latency=0.05)).toml()
    assert 'issue = "1460 us"' in text
    assert 'latency = "50000 us"' in text


@pytest.mark.parametrize("sigma", [0.01, 0.3])
def test_errors_of_one_kind_are_covered_nine_times_in_ten(sigma: float) -> None:
    rng = random.Random(5)
    errors = [rng.gauss(0.0, sigma) for _ in range(2000)]
    assert coverage(errors) == pytest.approx(0.9, abs=0.02)


def test_a_bias_is_part_of_the_spread() -> None:
    rng = random.Random(6)
    errors = [rng.gauss(0.2, 0.01) for _ in range(100)]
    assert coverage(errors) == 1.0


def test_errors_unlike_those_that_gave_the_spread_are_not_covered() -> None:
    assert coverage([0.01, 1.0] * 10) == 0.5


def test_too_few_errors_say_nothing() -> None:
    assert coverage([0.1] * 3) is None
