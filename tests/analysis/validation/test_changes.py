"""Changes of one thing: rows of a study against its first one."""

import pytest

from sim.analysis.validation.answer import Validation
from sim.analysis.validation.changes import changes, summary
from sim.analysis.validation.validate import ValidatedRun, ValidatedTable
from sim.results.answer import Inputs


def run(name: str, measured: float | None, predicted: float | None, study: str = "s"):
    return ValidatedRun(id=name, measured=measured, predicted=predicted, study=study)


def table(*rows: ValidatedRun) -> ValidatedTable:
    return ValidatedTable(name="t", rows=rows)


def test_a_study_s_first_row_is_what_the_others_change():
    own = table(run("a", 2.0, 1.0), run("b", 3.0, 1.4), run("c", 1.0, 1.1), run("x", 9.0, 9.0, ""))
    first, second = changes(own)
    assert (first.before, first.id) == ("a", "b")
    assert (first.measured, first.predicted) == pytest.approx((0.5, 0.4))
    assert first.signed
    assert not first.close
    assert (second.measured, second.predicted) == pytest.approx((-0.5, 0.1))
    assert not second.signed
    assert summary(own) == {"changes": 2, "changes_signed": 1, "changes_close": 0}
    assert "1 of 2 changes have the right sign" in str(
        Validation(inputs=Inputs(), tables=(own,), quiet=True)
    )


def test_what_all_rows_share_cancels_out():
    (change,) = changes(table(run("a", 10.0, 1.0), run("b", 12.0, 1.23)))
    assert change.close
    assert change.signed


def test_rows_without_a_time_or_a_study_change_nothing():
    own = table(
        run("a", None, 1.0), run("b", 2.0, None), run("c", 2.0, 1.0), run("d", 2.0, 1.0, "")
    )
    assert changes(own) == []
    assert summary(own) == {}
