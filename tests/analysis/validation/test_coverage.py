"""Coverage: normal errors of a known spread are covered as often as they should be."""

import random
from dataclasses import replace
from math import exp, log

import pytest

from sim.analysis.validation import coverage, spread
from sim.analysis.validation.answer import Validation
from sim.analysis.validation.validate import ValidatedRun, ValidatedTable
from sim.results.answer import Inputs
from sim.uncertainty.evidence import Campaign, Evidence
from sim.uncertainty.intervals import ErrorLaw, interval

NOTHING = Evidence(spreads=())


def campaign(stack: str) -> Campaign:
    return Campaign(
        stack=stack, device="d", generation="hopper", topology="t", precision="bf16", work="dense"
    )


def table(
    name: str, sigma: float, bias: float = 0.0, rows: int = 400, stack: str = ""
) -> ValidatedTable:
    rng = random.Random(name)
    return ValidatedTable(
        name=name,
        rows=tuple(
            ValidatedRun(id=str(i), predicted=1.0, measured=exp(rng.gauss(bias, sigma)),
                campaign=campaign(stack or name), job=(str(i // 2),))
            for i in range(rows)
        ),
    )  # fmt: skip


def held(tables: list[ValidatedTable]) -> list[coverage.Coverage]:
    return coverage.coverage(tables, NOTHING)


def test_every_other_row_is_covered_nine_times_in_ten():
    (covered,) = held([table("a", 0.1)])
    assert covered.rows.covered == pytest.approx(0.9, abs=0.05)


def test_rows_of_campaigns_in_turns_are_known_by_one_another():
    first, second = (table(name, 0.02, bias) for name, bias in (("a", 0.0), ("b", 1.0)))
    turns = tuple(run for pair in zip(first.rows, second.rows, strict=True) for run in pair)
    (covered,) = held([replace(first, rows=turns)])
    assert covered.rows.off < 0.05


def test_a_kind_of_work_is_held_to_what_the_others_show():
    """Mixtures of experts that take e^0.3 times as long as dense models show: none is covered."""
    dense = [table(name, 0.02) for name in "ab"]
    moved = table("c", 0.02, 0.3, rows=20)
    experts = replace(
        moved,
        rows=tuple(
            replace(run, campaign=replace(run.campaign, work="experts")) for run in moved.rows
        ),
    )
    others, only = coverage.kinds([*dense, experts], NOTHING)
    assert (others["kind"], others["rows"], only["kind"]) == ("dense", 800, "experts")
    assert only["off"] == pytest.approx(0.3, abs=0.02)
    assert only["covered"] == 0.0


def test_a_stack_like_the_others_is_covered_unseen():
    biases = {"a": 0.0, "b": 0.1, "c": -0.1, "d": 0.05, "e": 0.0, "f": -0.05}
    tables = [table(name, 0.1, bias) for name, bias in biases.items()]
    shares = coverage.summary(held(tables))
    assert 0.85 < shares["table_kept_out"]["rows"]["covered"] <= 1.0


def test_a_stack_that_is_off_as_no_other_is_not_covered_unseen():
    tables = [*(table(name, 0.02) for name in "abcde"), table("f", 0.02, bias=2.0)]
    unseen = held(tables)[-1].table
    assert unseen.covered == 0.0
    assert 0.5 < unseen.width < 2.0  # an interval it has, though the others' errors are all alike
    assert unseen.off == pytest.approx(2.0, abs=0.1)


def test_the_same_stack_in_another_table_makes_it_known():
    tables = [table(name, 0.02) for name in "abcd"]
    tables += [table(name, 0.02, 1.0, stack="odd") for name in "ef"]
    assert held(tables)[-1].table.covered > 0.8


def test_one_table_is_held_to_the_packaged_evidence_of_the_others(monkeypatch):
    packaged = spread.spreads([table(name, 0.05) for name in "abcdef"])
    monkeypatch.setattr(coverage, "evidence", lambda: Evidence(spreads=tuple(packaged)))
    alone = coverage.coverage([table("a", 0.05)])
    among = held([table(name, 0.05) for name in "abcdef"])
    assert alone[0].table == among[0].table
    assert alone[0].table.width < 2.0


def test_a_table_of_the_packaged_ones_is_no_evidence_for_itself():
    own = table("a", 0.02, bias=1.0)
    others = [table(name, 0.05) for name in "bcdef"]
    packaged = Evidence(spreads=tuple(spread.spreads([own, *others])))
    (judged,) = coverage.coverage([own], packaged)
    assert judged.table.covered == 0.0


def test_what_measured_an_incident_is_not_judged():
    calm = table("a", 0.1)
    stalled = replace(calm.rows[0], id="far", measured=50.0, incident="stall")
    mixed = ValidatedTable(name="a", rows=(*calm.rows, stalled))
    assert held([mixed]) == held([calm])


def test_the_score_is_the_width_and_twenty_times_what_lies_outside():
    own = interval(1.0, ErrorLaw(bias=0.0, scale=0.1, apart=0.1, basis=""))
    width = log(own.high / own.low)
    assert coverage.score(1.0, own) == pytest.approx(width)
    assert coverage.score(own.high * exp(0.01), own) == pytest.approx(width + 0.2)
    assert coverage.score(own.low / exp(0.01), own) == pytest.approx(width + 0.2)


def test_the_score_is_best_for_the_true_scale():
    rng = random.Random(0)
    measured = [exp(rng.gauss(0.0, 0.1)) for _ in range(4000)]
    scores = [
        sum(coverage.score(one, interval(1.0, ErrorLaw(bias=bias, scale=scale, apart=1, basis="")))
            for one in measured)
        for bias, scale in ((0.0, 0.077), (0.0, 0.03), (0.0, 0.2), (0.1, 0.077))
    ]  # fmt: skip  # 0.077 x 2.132 = 0.1 x 1.645
    assert min(scores) == scores[0]


def test_rows_that_were_not_simulated_count_nowhere():
    simulated = table("a", 0.1, rows=9)
    more = ValidatedTable(
        name="a", rows=(*simulated.rows, ValidatedRun(id="x", measured=1.0, reason="no"))
    )
    none = ValidatedTable(name="b", rows=(ValidatedRun(id="y", reason="no"),))
    assert held([more, none]) == held([simulated])


def test_the_text_has_a_line_a_table_and_both_means():
    covered = tuple(held([table("first", 0.1), table("second", 0.2)]))
    shown = str(Validation(inputs=Inputs(), tables=(), covered=covered))
    for word in ("first", "second", "all rows", "mean of tables"):
        assert f"\n  {word}" in shown


def test_a_spread_is_not_widened_by_one_far_outlier():
    calm = table("a", 0.1)
    rows = (
        *calm.rows,
        ValidatedRun(id="far", predicted=1.0, measured=100.0, campaign=campaign("a")),
    )
    (before,), (after,) = (
        spread.spreads([calm]),
        spread.spreads([ValidatedTable(name="a", rows=rows)]),
    )
    assert before.scale == pytest.approx(0.09, rel=0.15)
    assert after.scale == pytest.approx(before.scale, rel=0.05)


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
        assert group.scale == pytest.approx(made.scale, abs=1e-4)
