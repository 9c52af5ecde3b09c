"""Distributions are what they say: drawn moments against closed forms, and seeds by name."""

from math import inf, isinf
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.config.errors import InputError
from sim.variability.jitter import Cause, Jitter
from sim.variability.stragglers import (
    Constant,
    Lognormal,
    OnOff,
    Pareto,
    Pauses,
    ShiftedExponential,
    Straggling,
    Trace,
    generators,
    recorded,
)

DISTRIBUTIONS: list[Straggling] = [
    Constant(factor=1.3),
    Lognormal(sigma=0.02),
    Lognormal(sigma=0.5, median=1.1),
    ShiftedExponential(extra=0.2),
    Pareto(alpha=6.0),
    OnOff(factor=1.5, slow=4.0, well=12.0),
    Pauses(factor=3.0, every=10),
    Pauses(factor=3.0, every=10, together=True),
    Trace(factors=(1.0, 1.0, 2.0, 1.5)),
]


def drawn(one: Straggling, steps: int = 2000, members: int = 400) -> np.ndarray:
    return one.draw(generators(11, "test")["test"], steps, members)


@pytest.mark.parametrize("one", DISTRIBUTIONS, ids=repr)
def test_mean_and_variance_are_those_drawn(one):
    factors = drawn(one)
    assert factors.shape == (2000, 400)
    assert factors.mean() == pytest.approx(one.mean, rel=0.01)
    assert factors.var() == pytest.approx(one.variance, rel=0.06, abs=1e-12)


@given(sigma=st.floats(0.01, 1.0))
def test_the_lognormals_logarithm_has_its_sigma(sigma):
    logs = np.log(Lognormal(sigma=sigma).draw(np.random.default_rng(0), 20_000))
    assert logs.std() == pytest.approx(sigma, rel=0.03)


def test_a_pareto_without_moments_says_so():
    assert isinf(Pareto(alpha=1.0).mean)
    assert Pareto(alpha=1.5).mean == 3.0
    assert Pareto(alpha=1.5).variance == inf


def test_paretos_tail_is_a_power():
    factors = drawn(Pareto(alpha=2.0))
    assert (factors > 3.0).mean() == pytest.approx(1 / 9, rel=0.02)


def test_slow_spells_last_as_long_as_said():
    is_slow = drawn(OnOff(factor=2.0, slow=5.0, well=20.0))[:, :] > 1.0
    starts = (~is_slow[:-1] & is_slow[1:]).sum()
    assert is_slow[1:].sum() / starts == pytest.approx(5.0, rel=0.05)


def test_pauses_come_every_so_often_at_phases_of_their_own():
    factors = drawn(Pauses(factor=2.0, every=7), steps=70)
    assert ((factors > 1.0).sum(axis=0) == 10).all()
    assert len({tuple(column) for column in factors.T}) == 7


def test_pauses_together_hit_everybody_at_once():
    factors = drawn(Pauses(factor=2.0, every=7, together=True), steps=70)
    assert (factors == factors[:, :1]).all()


def test_a_trace_is_played_in_its_order():
    trace = Trace(factors=(1.0, 2.0, 3.0))
    column = drawn(trace, steps=6, members=1)[:, 0].tolist()
    assert column[3:] == column[:3]
    assert sorted(column[:3]) == [1.0, 2.0, 3.0]


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32), names=st.permutations(["kernels", "pauses", "nodes"]))
def test_a_causes_draws_do_not_depend_on_other_causes(seed, names):
    alone = generators(seed, "pauses")["pauses"].random(3)
    among = generators(seed, *names)
    among["kernels"].random(100)
    assert among["pauses"].random(3).tolist() == alone.tolist()


def test_another_seed_draws_other_numbers():
    assert generators(1, "a")["a"].random() != generators(2, "a")["a"].random()
    assert generators(1, "a")["a"].random() != generators(1, "b")["b"].random()


# --- Recorded traces ------------------------------------------------------------------------------


def test_a_recorded_trace_is_relative_to_its_median(tmp_path: Path):
    path = tmp_path / "steps.csv"
    path.write_text("step,seconds\n1,2.0\n2,2.0\n3,3.0\n")
    assert recorded(path).factors == (1.0, 1.0, 1.5)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("seconds\n1.0\nx\n", "line 3 holds no step time"),
        ("1.0\n1.0,\n", "line 2 holds no step time"),
        ("1.0\n-1.0\n", "line 2"),
        ("1.0\nnan\n", "line 2"),
        ("seconds\n", "holds no step times"),
        ("", "holds no step times"),
        ("seconds\n1.0\n\n2.0\n", "line 3 holds no step time"),
        ("step,seconds\n1,1.0\n2,1.1\n5,1.0\n", "step 2 is followed by step 5"),
    ],
)
def test_a_trace_with_holes_is_refused(tmp_path: Path, content: str, what: str):
    path = tmp_path / "steps.csv"
    path.write_text(content)
    with pytest.raises(InputError, match=what):
        recorded(path)


def test_a_trace_that_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match="no such file"):
        recorded(tmp_path / "none.csv")


# --- The table in a scenario ----------------------------------------------------------------------


def test_a_cause_becomes_its_distribution():
    assert Cause(name="gc", kind="pauses", factor=2.0, every=5).distribution() == Pauses(
        factor=2.0, every=5
    )


@pytest.mark.parametrize(
    ("given", "what"),
    [
        (dict(kind="lognormal"), "needs sigma"),
        (dict(kind="pareto", alpha=3.0, sigma=0.1), "has no sigma"),
        (dict(kind="on-off", factor=2.0, slow=3.0), "needs well"),
    ],
)
def test_a_cause_asks_for_what_its_distribution_needs(given, what):
    with pytest.raises(ValueError, match=what):
        Cause(name="x", **given)


def test_what_is_not_known_is_assumed_and_said():
    assert Jitter().assumed
    assert Jitter().causes[0].distribution() == Lognormal(sigma=0.02)


def test_two_causes_of_one_name_are_refused():
    one = Cause(name="x", sigma=0.1)
    with pytest.raises(ValueError, match="two causes"):
        Jitter(cause=(one, one))
