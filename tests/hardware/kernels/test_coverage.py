"""A spread that was seen covers nine in ten errors of the same kind."""

import random

import pytest

from sim.hardware.kernels.residuals import coverage


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
