"""Random effects: variances of levels are found again, and means are shrunk as theory says."""

from functools import cache

import numpy as np
import pytest

from sim.uncertainty import random_effects

NOISE = 1e-6


def balanced(wide: float, own: float, groups: int = 60, members: int = 6, seed: int = 0):
    """Errors of members of groups with effects of these standard deviations."""
    rng = np.random.default_rng(seed)
    effects = rng.normal(0.0, wide, groups)
    errors = [0.1 + effect + rng.normal(0.0, own) for effect in effects for _ in range(members)]
    places = [(f"g{g}", (g, m)) for g in range(groups) for m in range(members)]
    return errors, [NOISE] * len(errors), places


@cache  # seconds
def fitted() -> random_effects.RandomEffects:
    return random_effects.fit(*balanced(0.2, 0.05))


def test_the_variances_of_levels_and_the_mean_are_found_again() -> None:
    known = fitted()
    wide, own = np.sqrt(known.variances)
    assert known.mean == pytest.approx(0.1, abs=0.06)
    assert wide == pytest.approx(0.2, rel=0.2)
    assert own == pytest.approx(0.05, rel=0.3)  # a scale of Student's t, so less than sigma


def test_a_new_member_of_a_group_is_expected_at_its_shrunk_mean() -> None:
    errors, known = balanced(0.2, 0.05)[0], fitted()
    wide, own = known.variances
    pulls = known.weights[:6] / own
    shrunk = pulls.sum() * wide / (1.0 + pulls.sum() * wide)  # Henderson 1975, one level
    mean = float(pulls @ errors[:6] / pulls.sum())
    expected, _ = known.expected(("g0", "new"))
    assert expected == pytest.approx(known.mean + shrunk * (mean - known.mean), rel=1e-3)


def test_what_is_less_alike_is_less_sure() -> None:
    known = fitted()
    seen, sibling, stranger = (
        known.expected(place)[1] for place in (("g0", (0, 0)), ("g0", "new"), ("new", "new"))
    )
    assert seen < sibling < stranger
    assert stranger == pytest.approx(known.variances.sum(), rel=0.05)


def test_noisy_means_are_drawn_to_the_others() -> None:
    errors, _, places = balanced(0.0, 0.05, groups=1, members=40)
    errors[0] = 0.5
    for noise, least, most in ((1e-6, 0.45, 0.51), (1.0, 0.0, 0.2)):
        known = random_effects.fit(errors, [noise, *[1e-6] * 39], places)
        assert least < known.expected(places[0])[0] < most


def test_one_campaign_as_no_other_widens_nobody_else() -> None:
    errors, noise, places = balanced(0.0, 0.05, groups=1, members=40)
    calm = random_effects.fit(errors, noise, places)
    errors[0] = 3.0
    wild = random_effects.fit(errors, noise, places)
    assert wild.variances[-1] < 2.0 * calm.variances[-1]
    assert wild.expected(("g0", "new"))[0] == pytest.approx(
        calm.expected(("g0", "new"))[0], abs=0.02
    )


def test_without_any_campaign_nothing_is_corrected_and_little_sure() -> None:
    mean, variance = random_effects.fit([], [], []).expected(("a", "b"))
    assert mean == 0.0
    assert variance > 0.01
