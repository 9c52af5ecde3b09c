"""Coverage: normal errors of a known spread are covered as often as they should be."""

import random
from dataclasses import replace
from math import exp

import pytest

from sim.uncertainty.evidence import Evidence
from sim.validation import coverage, spread
from sim.validation.validate import ValidatedRun, ValidatedTable


def table(
    name: str, sigma: float, bias: float = 0.0, rows: int = 400, stack: str = ""
) -> ValidatedTable:
    rng = random.Random(name)
    return ValidatedTable(
        name=name,
        rows=tuple(
            ValidatedRun(id=str(i), predicted=1.0, measured=exp(rng.gauss(bias, sigma)), device="d",
                stack=stack or name, topology="t")
            for i in range(rows)
        ),
    )  # fmt: skip


def test_every_other_row_is_covered_nine_times_in_ten():
    (covered,) = coverage.coverage([table("a", 0.1)])
    assert covered.rows == pytest.approx(0.9, abs=0.04)


def test_a_stack_like_the_others_is_covered_unseen():
    biases = {"a": 0.0, "b": 0.1, "c": -0.1, "d": 0.05, "e": 0.0, "f": -0.05}
    tables = [table(name, 0.1, bias) for name, bias in biases.items()]
    shares = coverage.summary(coverage.coverage(tables))
    assert 0.85 < shares["table_kept_out"]["rows"] <= 1.0


def test_a_stack_that_is_off_as_no_other_is_not_covered_unseen():
    tables = [*(table(name, 0.02) for name in "abcde"), table("f", 0.02, bias=1.0)]
    assert coverage.coverage(tables)[-1].table == 0.0


def test_the_same_stack_in_another_table_makes_it_known():
    tables = [table(name, 0.02) for name in "abcd"]
    tables += [table(name, 0.02, 1.0, stack="odd") for name in "ef"]
    assert coverage.coverage(tables)[-1].table > 0.8


def test_rows_that_were_not_simulated_count_nowhere():
    simulated = table("a", 0.1, rows=9)
    more = ValidatedTable(
        name="a", rows=(*simulated.rows, ValidatedRun(id="x", measured=1.0, reason="no"))
    )
    none = ValidatedTable(name="b", rows=(ValidatedRun(id="y", reason="no"),))
    assert coverage.coverage([more, none]) == coverage.coverage([simulated])


def test_the_text_has_a_line_a_table_and_both_means():
    shown = coverage.text(coverage.coverage([table("first", 0.1), table("second", 0.2)]))
    for word in ("first", "second", "all rows", "mean of tables"):
        assert f"\n{word}" in shown


def test_a_spread_is_not_widened_by_one_far_outlier():
    calm = table("a", 0.1)
    rows = (
        *calm.rows,
        ValidatedRun(id="far", predicted=1.0, measured=100.0, stack="a", device="d"),
    )
    (before,), (after,) = (
        spread.spreads([calm]),
        spread.spreads([ValidatedTable(name="a", rows=rows)]),
    )
    assert before.sigma == pytest.approx(0.1, rel=0.15)
    assert after.sigma == pytest.approx(before.sigma, rel=0.05)


def test_what_measured_an_incident_widens_no_spread():
    calm = table("a", 0.1)
    stalled = [
        replace(run, measured=9.0 * (run.measured or 1.0), incident="stall") for run in calm.rows
    ]
    mixed = ValidatedTable(name="a", rows=(*calm.rows, *stalled))
    assert spread.spreads([mixed]) == spread.spreads([calm])


def test_what_is_written_is_what_is_read(tmp_path, monkeypatch):
    from sim.uncertainty import evidence

    tables = [table("a", 0.1), table('b "quoted"', 0.2, bias=-0.1)]
    (tmp_path / evidence.FOLDER).mkdir(parents=True)
    spread.write(tables, tmp_path / evidence.FOLDER / "mine.toml")
    monkeypatch.chdir(tmp_path)
    read = Evidence(spreads=evidence.evidence.__wrapped__().spreads)
    ours = [group for group in read.spreads if group.stack in ("a", 'b "quoted"')]
    for group, made in zip(ours, spread.spreads(tables), strict=True):
        assert (group.stack, group.rows) == (made.stack, made.rows)
        assert group.sigma == pytest.approx(made.sigma, abs=1e-4)
