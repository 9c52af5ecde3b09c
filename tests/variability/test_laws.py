"""Laws are what they say: drawn moments against closed forms, and seeds by name."""

from math import exp, isinf
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.variability.laws import (
    LAWS,
    Constant,
    Lognormal,
    OnOff,
    Pareto,
    Pauses,
    ShiftedExponential,
    SlowdownLaw,
    Trace,
    generator,
)

# Laws with their variances in closed form.
EXAMPLES: list[tuple[SlowdownLaw, float]] = [
    (Constant(factor=1.3), 0.0),
    (Lognormal(sigma=0.02), exp(0.02**2) * (exp(0.02**2) - 1.0)),
    (Lognormal(sigma=0.5), exp(0.5**2) * (exp(0.5**2) - 1.0)),
    (ShiftedExponential(extra=0.2), 0.2**2),
    (Pareto(alpha=6.0), 6.0 / (5.0**2 * 4.0)),
    (OnOff(factor=1.5, slow=4.0, well=12.0), 0.25 * 0.75 * 0.5**2),
    (Pauses(factor=3.0, every=10), 0.1 * 0.9 * 2.0**2),
    (Pauses(factor=3.0, every=10, together=True), 0.1 * 0.9 * 2.0**2),
]


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    path = tmp_path / "steps.csv"
    path.write_text("2.0\n1.0\n1.0\n3.0\n")  # the median is 1.5
    return Trace(file=str(path))


def drawn(law: SlowdownLaw, steps: int = 2000, members: int = 400) -> np.ndarray:
    return law.draw(generator(11, "test"), steps, members)


def test_every_law_has_an_example():
    assert {type(law) for law, _ in EXAMPLES} | {Trace} == set(LAWS)


@pytest.mark.parametrize(("law", "variance"), EXAMPLES, ids=repr)
def test_mean_and_variance_are_those_drawn(law, variance):
    factors = drawn(law)
    assert factors.shape == (2000, 400)
    assert factors.mean() == pytest.approx(law.mean, rel=0.01)
    assert factors.var() == pytest.approx(variance, rel=0.06, abs=1e-12)


def test_mean_and_variance_of_a_trace_are_those_drawn(trace):
    test_mean_and_variance_are_those_drawn(trace, np.var(trace.factors))


@pytest.mark.parametrize("law", [law for law, _ in EXAMPLES], ids=repr)
def test_however_a_run_is_divided_it_draws_the_same(law):
    blocks = law.blocks(generator(11, "test"), (1, 7, 2, 30), 5)
    assert np.concatenate(list(blocks)).tolist() == drawn(law, steps=40, members=5).tolist()


def test_a_trace_is_drawn_the_same_however_a_run_is_divided(trace):
    test_however_a_run_is_divided_it_draws_the_same(trace)


@given(sigma=st.floats(0.01, 1.0))
def test_the_lognormals_logarithm_has_its_sigma(sigma):
    logs = np.log(Lognormal(sigma=sigma).draw(np.random.default_rng(0), 20_000))
    assert logs.std() == pytest.approx(sigma, rel=0.03)


def test_a_pareto_without_a_mean_says_so():
    assert isinf(Pareto(alpha=1.0).mean)
    assert Pareto(alpha=1.5).mean == 3.0


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


def test_a_trace_is_played_in_its_order(trace):
    column = drawn(trace, steps=8, members=1)[:, 0].tolist()
    assert column[4:] == column[:4]
    first = trace.factors.index(column[0])
    turned = trace.factors[first:] + trace.factors[:first]
    assert column[:4] in (list(turned), [*turned[-1:], *turned[:-1]])


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32), names=st.permutations(["kernels", "pauses", "nodes"]))
def test_a_causes_draws_do_not_depend_on_other_causes(seed, names):
    alone = generator(seed, "pauses").random(3)
    among = {name: generator(seed, name) for name in names}
    among["kernels"].random(100)
    assert among["pauses"].random(3).tolist() == alone.tolist()


def test_another_seed_draws_other_numbers():
    drawn = [generator(*key).random() for key in ((1, "a"), (2, "a"), (1, "b"), (1, "a", 5))]
    assert len(set(drawn)) == 4
