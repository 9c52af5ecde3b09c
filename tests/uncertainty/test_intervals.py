"""Intervals: narrow with measured runs, wide without any, around what a known bias corrects."""

import math
from dataclasses import replace

import pytest

import sim
from sim.uncertainty.evidence import Campaign, Evidence, Spread, evidence
from sim.uncertainty.intervals import Interval, Kernels, Sigmas
from sim.uncertainty.order import faster, told_apart
from sim.uncertainty.student import quantile

JOB = Campaign(
    stack="a", device="x", generation="hopper", topology="c", precision="bf16", work="dense"
)
UNLIKE = {
    "topology": "elsewhere", "precision": "fp8", "device": "y", "generation": "volta",
    "work": "experts", "stack": "new",
}  # fmt: skip


def spread(stack="a", rows=100, location=0.0, scale=0.05, table="t", **changes) -> Spread:
    fields = {name: getattr(JOB, name) for name in Campaign.__dataclass_fields__}
    return Spread(**fields | {"stack": stack, "table": table, "rows": rows, "location": location,
                              "scale": scale} | changes)  # fmt: skip


def many(**changes) -> Evidence:
    """Stacks off by different factors, which also differ by device; changes are of the first."""
    others = [
        spread(f"s{i}", location=0.1 * (-1) ** i + 0.08 * (-1) ** (i // 2 + j), device=device)
        for i in range(9)
        for j, device in enumerate("xz")
    ]
    return Evidence(spreads=(spread(**changes), *others))


def known(measured: Evidence, kernels=None, **changes) -> Interval:
    return measured.interval(10.0, replace(JOB, **changes), kernels=kernels)


def width(measured: Evidence, kernels=None, **changes) -> float:
    found = known(measured, kernels, **changes)
    return math.log(found.high / found.low)


def test_many_runs_of_the_same_campaign_give_their_own_spread():
    assert width(many(rows=10_000)) == pytest.approx(2 * quantile(0.95) * 0.05, rel=0.02)


def test_fewer_runs_give_a_wider_interval():
    widths = [width(many(rows=rows)) for rows in (3, 10, 30, 1000)]
    assert widths == sorted(widths, reverse=True)


def test_tables_of_one_campaign_that_disagree_widen_the_interval():
    def two(bias):
        tables = (spread(location=bias, table="t"), spread(location=-bias, table="u"))
        return Evidence(spreads=(*tables, *many().spreads[1:]))

    assert width(two(0.2)) > 2 * width(two(0.0))


@pytest.mark.parametrize("key", UNLIKE)
def test_a_job_unlike_the_measured_ones_is_less_sure(key):
    assert width(many(), **{key: UNLIKE[key]}) > 1.5 * width(many())


def test_a_stack_that_was_never_measured_is_less_sure_than_a_new_cluster_of_a_measured_one():
    assert width(many(), topology="elsewhere") < width(many(), stack="new")


def test_a_known_bias_moves_what_is_expected_and_the_interval_around_it():
    moved = known(many(location=0.08, rows=1000))
    assert moved.expected == pytest.approx(10.0 * math.exp(0.08), rel=0.01)
    assert math.sqrt(moved.low * moved.high) == pytest.approx(moved.expected, rel=1e-9)


def test_few_rows_correct_less_than_many():
    biases = [known(many(location=0.3, rows=rows)).errors.bias for rows in (1, 3, 10, 1000)]
    assert biases == sorted(biases)
    assert 0.0 < biases[0] < 0.29 < biases[-1] < 0.3


def test_a_campaign_as_no_other_does_not_widen_those_of_others():
    assert width(many(location=5.0), stack="new") < 1.3 * width(many(), stack="new")


def test_without_any_measured_run_there_is_an_interval_all_the_same():
    none = known(Evidence(spreads=()))
    assert none.low < none.expected == 10.0 < none.high


def test_the_basis_says_what_was_measured_and_what_was_not():
    said = {key: known(many(rows=7), **{key: UNLIKE[key]}).errors.basis for key in UNLIKE}
    assert known(many(rows=7)).errors.basis == "7 measured runs of a on x"
    assert said["device"] == "1,807 measured runs (7 of a, none on y)"
    assert said["precision"] == "1,807 measured runs (7 of a, none in fp8)"
    assert said["work"] == "1,807 measured runs (7 of a, none with experts)"
    assert said["stack"] == "1,807 measured runs (none of new)"


def test_a_kind_of_model_that_nobody_measured_is_less_sure_and_says_so():
    runs = many(rows=7)
    alike, other = (known(runs, stack="new", **work) for work in ({}, {"work": "other"}))
    assert other.errors.basis == "1,807 measured runs (none of models of this kind)"
    assert other.errors.scale > 1.05 * alike.errors.scale


def test_recommendation_models_are_less_sure_than_transformers():
    """No run of either's stack was measured, and transformers were by others."""
    sure, unsure = (sim.run(name) for name in ("gpt2-one-gpu", "dlrm"))
    width, wider = (done.step_time_high / done.step_time_low for done in (sure, unsure))
    assert wider > 1.1 * width


def test_a_table_judged_anew_takes_the_place_of_the_packaged_one():
    fresh = many().replaced([spread(location=0.5)], tables={"t"})
    assert [one.location for one in fresh.spreads] == [0.5]
    assert len(many().replaced([], tables={"u"}).spreads) == len(many().spreads)


def test_the_longer_of_two_layouts_is_the_slower_one_the_more_it_is_longer():
    chances = [faster(1.0, other, 0.05) for other in (1.0, 1.02, 1.1, 2.0)]
    assert chances[0] == 0.5
    assert chances == sorted(chances)
    assert faster(1.0, 1.0 + told_apart(0.05), 0.05) == pytest.approx(0.9)


def test_layouts_of_one_job_are_told_apart_by_what_they_do_not_share():
    alike, unlike = (known(many(layouts=500, apart=apart)).errors for apart in (0.01, 0.2))
    assert alike.apart == pytest.approx(0.01, abs=0.01)
    assert unlike.apart == pytest.approx(0.2, abs=0.01)


def test_a_profile_that_knows_its_kernels_narrows_the_interval_and_a_bad_one_widens_it():
    shares = {"gemm": 0.5, "collective": 0.5}
    usual, good, bad = (
        width(many(scale=0.1), Kernels.of(sigmas, shares))
        for sigmas in (Sigmas(), Sigmas(gemm=0.01), Sigmas(gemm=0.3))
    )
    assert good < usual < bad


def test_the_usual_errors_of_kernels_are_counted_once():
    kernels = Kernels.of(Sigmas(), {"gemm": 1.0})
    assert width(many(scale=0.1), kernels) == pytest.approx(width(many(scale=0.1)))


def test_an_interval_is_never_narrower_than_the_kernels_it_rests_on():
    kernels = Kernels(sigma=0.04, usual=0.3, shares={})
    assert kernels.corrected(0.1**2) == pytest.approx(0.04**2)
    assert kernels.corrected(0.01**2) == pytest.approx(0.01**2)


def test_a_profile_replaces_only_the_classes_that_it_measured():
    mixed = Sigmas().replaced({"gemm": 0.02, "launch": 9.0})
    assert (mixed.gemm, mixed.host) == (0.02, Sigmas().host)


def test_a_result_carries_its_interval_and_names_its_basis():
    result = sim.run("gpt2-one-gpu")
    assert result.step_time_low < result.step_time_expected < result.step_time_high
    assert result.step_time == pytest.approx(sum(result.breakdown.values()))
    assert result.interval["level"] == 0.9
    assert "measured runs" in result.interval["basis"]


def test_the_packaged_runs_are_of_every_campaign_once_a_table():
    keys = [(spread.table, spread.campaign) for spread in evidence().spreads]
    assert len(keys) == len(set(keys)) > 50


def test_no_packaged_campaign_is_expected_at_the_edge_of_its_interval():
    for spread in evidence().spreads:
        own = evidence().interval(1.0, spread.campaign)
        assert math.log(own.high / own.expected) == pytest.approx(math.log(own.expected / own.low))
