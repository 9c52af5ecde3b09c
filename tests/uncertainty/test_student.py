"""Student's t: the closed forms are scipy's, and outliers move neither location nor scale."""

from functools import cache
from typing import Any

import numpy as np
import pytest

from sim.uncertainty import student


@cache
def law() -> Any:
    from scipy import stats  # type: ignore[import-untyped]  # ships no types, takes a second to load

    return stats.t(student.FREEDOM)


@pytest.mark.parametrize("probability", [0.001, 0.05, 0.3, 0.5, 0.9, 0.999])
def test_quantiles_are_those_of_scipy(probability: float) -> None:
    assert student.quantile(probability) == pytest.approx(law().ppf(probability), abs=1e-9)


@pytest.mark.parametrize("value", [-5.0, -0.1, 0.0, 2.0, 40.0])
def test_probabilities_are_those_of_scipy(value: float) -> None:
    assert student.below(value) == pytest.approx(law().cdf(value), abs=1e-12)


def test_location_and_scale_of_a_sample_are_found_again() -> None:
    drawn = 0.05 + 0.1 * law().rvs(20_000, random_state=1)
    location, scale = student.fit(drawn.tolist())
    assert location == pytest.approx(0.05, abs=0.003)
    assert scale == pytest.approx(0.1, rel=0.03)


def test_a_tenth_of_incidents_moves_the_scale_less_than_a_standard_deviation() -> None:
    rng = np.random.default_rng(0)
    calm = rng.normal(0.0, 0.1, 900)
    mixed = np.concatenate([calm, rng.normal(2.0, 1.0, 100)])
    before, after = student.fit(calm.tolist())[1], student.fit(mixed.tolist())[1]
    assert after < 1.5 * before
    assert mixed.std() > 5 * calm.std()


def test_one_error_has_a_location_and_no_scale() -> None:
    assert student.fit([0.3]) == (0.3, 0.0)
