"""Recorded step times: factors of their median, and no holes."""

from pathlib import Path

import pytest

from sim.config.errors import InputError
from sim.variability.recorded import factors


def test_a_recorded_trace_is_relative_to_its_median(tmp_path: Path):
    path = tmp_path / "steps.csv"
    path.write_text("step,seconds\n1,2.0\n2,2.0\n3,3.0\n")
    assert factors(path) == (1.0, 1.0, 1.5)


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
        factors(path)


def test_a_trace_that_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match="no such file"):
        factors(tmp_path / "none.csv")
