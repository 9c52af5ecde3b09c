"""Lengths follow their laws: means as they are capped, correlation within a prompt, seeds."""

from pathlib import Path

import numpy as np
import pytest

from sim.jobs.generation.lengths import (
    Constant,
    Law,
    Lengths,
    Lognormal,
    Measured,
    Mixture,
    Part,
    _block,
)

TABLE = Measured(table=(10.0, 20.0, 90.0))
LAWS = [
    Constant(value=40.0),
    Lognormal(mean=60.0, sigma=1.0),
    TABLE,
    Mixture(parts=(Part(weight=3.0, of=TABLE), Part(weight=1.0, of=Lognormal(mean=50, sigma=0.5)))),
]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.law)
def test_the_stated_mean_is_that_of_capped_values(law: Law) -> None:
    values = law.values(np.random.default_rng(0).standard_normal(100_000), 100.0)
    assert values.max() <= 100.0
    assert values.mean() == pytest.approx(law.expected(100.0), rel=0.01)


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_answers_of_a_prompt_are_as_correlated_as_stated(correlation: float) -> None:
    lengths = Lengths(of=Lognormal(mean=1e4, sigma=0.3), cap=10**9, correlation=correlation)
    drawn = np.log([lengths.drawn(1, "answers", prompt, 8) for prompt in range(2000)])
    pairs = np.corrcoef(drawn[:, 0], drawn[:, 1])[0, 1]
    assert pairs == pytest.approx(correlation, abs=0.06)
    assert drawn.std() == pytest.approx(0.3, rel=0.05)  # whatever the correlation


def test_a_file_of_lengths_is_read_and_a_hole_in_it_refused(tmp_path: Path) -> None:
    file = tmp_path / "lengths.csv"
    file.write_text("answer,tokens\n1,100\n2,300\n")
    assert Measured(file=str(file)).expected() == 200.0
    file.write_text("tokens\n100\nlong\n")
    with pytest.raises(Exception, match="line 3 holds no number"):
        Measured(file=str(file))


def test_a_mean_beyond_the_cap_is_refused() -> None:
    with pytest.raises(ValueError, match="above the cap"):
        Lengths(of=Lognormal(mean=200.0, sigma=0.5), cap=100)


def test_answers_are_drawn_in_blocks_of_bounded_size() -> None:
    lengths = Lengths(of=Constant(value=5.0), cap=9)
    for answers, prompts in ((8, 256), (1024, 128), (10**6, 1)):
        whole = _block(lengths, 1, "answers", 0, answers)
        assert whole.shape == (prompts, answers)
        drawn = lengths.drawn(1, "answers", prompts, answers)  # the first of the next block
        assert (drawn == _block(lengths, 1, "answers", 1, answers)[0]).all()
