"""The [jitter] table: causes with the keys of their laws."""

from pathlib import Path

import pytest

from sim.config.errors import InputError
from sim.config.schema import validate
from sim.variability.laws import Jitter, JitterCause, Lognormal, Pauses
from sim.variability.recorded import factors


def cause(**table: object) -> JitterCause:
    return validate({"name": "x", **table}, JitterCause, "scenario, jitter.cause")


def test_a_cause_has_the_law_that_its_kind_names():
    pauses = cause(kind="pauses", factor=2.0, every=5, each="node")
    assert pauses == JitterCause(name="x", law=Pauses(factor=2.0, every=5), each="node")


def test_a_cause_without_a_kind_is_lognormal():
    assert cause(sigma=0.1).law == Lognormal(sigma=0.1)


@pytest.mark.parametrize(
    ("table", "what"),
    [
        (dict(kind="lognormal"), "jitter.cause: sigma is missing"),
        (
            dict(kind="pareto", alpha=3.0, sigma=0.1),
            """'sigma' for kind = "pareto" \\(it belongs to lognormal\\); known: name""",
        ),
        (dict(kind="pareto", alpha=3.0, ech="node"), "did you mean 'each'"),
        (dict(kind="on-off", factor=2.0, slow=3.0), "well is missing"),
        (dict(kind="paretto", alpha=3.0), """kind = "paretto" is unknown; did you mean 'pareto'"""),
        (dict(kind="pareto", alpha=0.0), "set alpha above 0"),
        (dict(kind="trace", file="none.csv"), "no such file"),
    ],
)
def test_a_cause_asks_for_what_its_law_needs_and_nothing_else(table, what):
    with pytest.raises(InputError, match=what):
        cause(**table)


def test_what_is_not_known_is_assumed_and_said():
    assert Jitter().assumed
    assert Jitter().causes[0].law == Lognormal(sigma=0.02)


def test_two_causes_of_one_name_are_refused():
    with pytest.raises(ValueError, match="two causes"):
        Jitter(cause=(cause(sigma=0.1), cause(sigma=0.2)))


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
