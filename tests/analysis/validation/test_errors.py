"""What is said of a table beside its errors: ranks, regret, means, and which figures miss bars."""

from math import log

import pytest

from sim.analysis.validation.answer import Validation
from sim.analysis.validation.errors import RANKED, mean_of, missed, summary
from sim.analysis.validation.validate import ValidatedRun, ValidatedTable
from sim.results.answer import Inputs


def table(*runs: tuple[str, float, float]) -> ValidatedTable:
    """Runs as (job, measured, predicted), filled up with jobs of one layout."""
    alone = [(f"alone {n}", float(n + 1), float(n + 1)) for n in range(RANKED - len(runs))]
    rows = [
        ValidatedRun(
            id=str(n),
            measured=measured,
            predicted=predicted,
            at_peak=1.0,
            job=(job,),
            configuration={"job": job},
        )
        for n, (job, measured, predicted) in enumerate([*runs, *alone])
    ]
    return ValidatedTable(name="t", rows=tuple(rows))


def shown_of(*tables: ValidatedTable) -> str:
    return str(Validation(inputs=Inputs(), tables=tables, quiet=True))


def test_regret_is_that_of_the_layout_ranked_first_by_job():
    found = summary(table(("a", 1.0, 5.0), ("a", 1.2, 4.0), ("b", 2.0, 1.0), ("b", 3.0, 2.0)))
    assert found["jobs"] == 2
    assert found["regret_median"] == found["regret_mean"] == pytest.approx(0.1)


def test_layouts_that_were_measured_more_than_once_count_by_their_median():
    runs = [("a", time, 1.0) for time in (1.0, 1.1, 1.6)] + [("a", 1.0, 2.0)]
    assert summary(table(*runs))["regret_mean"] == pytest.approx(0.1)


def test_repeats_of_one_layout_are_no_choice():
    assert "jobs" not in summary(table(("a", 1.0, 1.0), ("a", 2.0, 1.0)))


def test_small_tables_have_no_regret_and_no_bar_of_ranks():
    runs = table(("a", 1.0, 2.0), ("a", 2.0, 1.0)).rows[:3]
    found = summary(ValidatedTable(name="t", rows=runs))
    assert "jobs" not in found
    assert found["spearman"] < 0.95
    assert "spearman" not in missed(found)


def test_figures_that_miss_their_bars_are_marked():
    worse = table(*[("a", float(n), float(n % 3 + 1)) for n in range(1, RANKED)])
    found = summary(worse)
    assert missed(found) >= {"bias", "spearman", "regret_median", "regret_mean"}
    shown = shown_of(worse)
    assert f"{found['spearman']:.3f}*" in shown
    assert "* bias beyond" in shown
    assert "*" not in shown_of(table())


def test_the_mean_of_tables_is_over_those_that_have_a_figure():
    means = mean_of([{"mape": 0.1, "regret_mean": 0.2}, {"mape": 0.3}, {}])
    assert means == pytest.approx({"mape": 0.2, "regret_mean": 0.2})
    assert "mean of tables" in shown_of(table(), table())
    assert "mean of tables" not in shown_of(table())


def test_repeats_of_one_configuration_say_how_noisy_runs_are():
    runs = [("a", 1.0, 1.0), ("a", 1.1, 1.0), ("b", 3.0, 3.0)]
    found = summary(table(*runs))
    assert found["repeated"] == 1
    assert found["apart"] == pytest.approx(0.1)
    assert found["noise"] == pytest.approx(log(1.1) / 2**0.5), "the deviation of two"
    assert "measured more than once:\n  t: 6.7% a run" in shown_of(table(*runs))
    assert "noise" not in summary(table())
