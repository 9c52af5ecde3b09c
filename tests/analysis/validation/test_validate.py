"""Validation: errors are computed right, and rows that cannot be simulated are told."""

import pandas as pd
import pytest

from sim.analysis.validation.answer import Validation
from sim.analysis.validation.answer import validate as predictions
from sim.analysis.validation.errors import naive_mape, summary
from sim.analysis.validation.table import REQUIRED, records
from sim.analysis.validation.validate import ValidatedRun, ValidatedTable, validate
from sim.config.errors import InputError
from sim.interface.plots import picture, validation
from sim.results.answer import Inputs

RUN = {
    "id": "one", "cluster": "dgx-a100-hdr", "family": "gpt", "layers": 24, "hidden": 2304,
    "heads": 24, "kv_heads": 24, "ffn": 9216, "vocab": 51200, "seq": 2048, "gated_mlp": False,
    "tied_embeddings": True, "experts": "", "gpus": 32, "tp": 1, "pp": 1, "dp": 32, "cp": 1,
    "zero": 0, "microbatch": 16, "global_batch": 512, "interleave": 1, "schedule": "none",
    "recompute": "full", "sequence_parallel": False, "precision": "fp16",
    "attention": "standard", "software": "megatron-lm-2021", "step_time_s": 3.528,
    "memory_gb": "", "memory_kind": "", "fits": True,
}  # fmt: skip


def table(tmp_path, *rows: dict) -> object:
    path = tmp_path / "runs.csv"
    pd.DataFrame([{**RUN, **row} for row in rows]).to_csv(path, index=False)
    return path


def rows(*pairs: tuple[float, float]) -> ValidatedTable:
    made = [
        ValidatedRun(id=str(i), measured=m, predicted=p, at_peak=m / 2)
        for i, (m, p) in enumerate(pairs)
    ]
    return ValidatedTable(name="t", rows=tuple(made))


def test_errors_are_predicted_over_measured_less_one():
    errors = summary(rows((1.0, 1.1), (2.0, 1.8), (4.0, 4.0)))
    assert errors["mape"] == pytest.approx((0.1 + 0.1 + 0.0) / 3)
    assert errors["bias"] == pytest.approx(0.0)
    assert errors["median"] == pytest.approx(0.1)
    assert abs(errors["worst"]) == pytest.approx(0.1)


def test_a_perfect_order_has_rank_correlation_one():
    assert summary(rows((1, 5), (2, 6), (3, 7)))["spearman"] == pytest.approx(1.0)


def test_the_naive_predictor_is_right_where_utilisation_is_constant():
    assert summary(rows((1.0, 9.0), (2.0, 9.0)))["naive_mape"] == pytest.approx(0.0)


def test_the_naive_predictor_has_the_best_constant():
    made = [
        ValidatedRun(id="x", measured=m, predicted=m, at_peak=w)
        for m, w in [(1, 1), (2, 1), (4, 1)]
    ]
    best = naive_mape(made)
    errors = [sum(abs(c / m - 1) for m in (1, 2, 4)) / 3 for c in [0.5, 0.9, 1.0, 1.1, 1.5, 2.0]]
    assert best == pytest.approx(min(errors))


def test_fits_is_balanced_over_both_classes():
    made = [
        ValidatedRun(id=str(i), fits_measured=measured, fits_predicted=predicted,
                     memory_measured=1.0, memory_predicted=1.0)
        for i, (measured, predicted) in enumerate(
            [(True, True)] * 8 + [(False, True), (False, False)]
        )
    ]  # fmt: skip
    errors = summary(ValidatedTable(name="t", rows=tuple(made)))
    assert errors["fits_accuracy"] == pytest.approx((1.0 + 0.5) / 2)


def test_a_row_is_simulated_from_its_columns(tmp_path):
    (validated,) = validate([table(tmp_path, {})], jobs=1)
    assert validated.rows[0].error == pytest.approx(0.0, abs=0.1)


def test_rows_that_cannot_be_simulated_are_told_with_the_reason(tmp_path):
    path = table(tmp_path, {}, {"id": "zb", "schedule": "zb-9p"}, {"id": "who", "cluster": "moon"})
    tables = validate([path], jobs=1)
    assert summary(tables[0])["simulated"] == 1
    shown = str(Validation(inputs=Inputs(), tables=tuple(tables)))
    assert "not simulated (2 rows)" in shown
    assert "no schedule named 'zb-9p'" in shown
    assert "no topology named 'moon'" in shown


def test_a_table_without_a_simulated_row_is_refused(tmp_path):
    path = table(tmp_path, {"id": "who", "cluster": "moon"}, {"id": "zb", "schedule": "zb-9p"})
    said = "^runs: none of 2 rows was simulated; who: .*no topology named 'moon'"
    with pytest.raises(InputError, match=said):  # which ends the command with 2
        predictions(path, jobs=1)


def test_a_row_in_another_unit_is_pointed_at():
    right, late = (
        ValidatedRun(id=i, measured=2.0, predicted=p, at_peak=1.0) for i, p in [("a", 1), ("b", 9)]
    )
    milli = ValidatedRun(id="ms", measured=19_600.0, predicted=19.6, at_peak=9.0)
    mega = ValidatedRun(id="MB", memory_measured=40e9, memory_predicted=40e6)
    made = (right, milli, late, mega)
    answer = Validation(inputs=Inputs(), tables=(ValidatedTable(name="t", rows=made),))
    assert answer.warnings == (
        "t, ms: step_time_s is 1,000 times the prediction; is it in seconds?",
        "t, MB: memory_gb is 1,000 times the prediction; is it in GiB?",
    )
    assert answer.warnings[0] in str(answer)


def test_a_run_that_did_not_fit_is_predicted_without_error(tmp_path):
    (validated,) = validate([table(tmp_path, {"step_time_s": None, "fits": False})], jobs=1)
    assert validated.rows[0].error is None
    assert validated.rows[0].fits_predicted is not None


@pytest.mark.parametrize("column", ["id", "step_time_s", "software"])
def test_a_missing_column_is_named(tmp_path, column):
    path = tmp_path / "runs.csv"
    pd.DataFrame([{k: v for k, v in RUN.items() if k != column}]).to_csv(path, index=False)
    with pytest.raises(InputError, match=f"column '{column}' is missing"):
        records(path)


def test_all_required_columns_are_in_the_sample():
    assert set(REQUIRED) <= set(RUN)


def test_the_plot_is_written_and_the_rows_are_a_frame(tmp_path):
    answer = Validation(inputs=Inputs(), tables=(rows((1.0, 1.1), (2.0, 1.8)),))
    picture.save(validation.figure(answer), tmp_path / "p.png")
    assert (tmp_path / "p.png").stat().st_size > 10_000
    assert list(answer.to_frame()["predicted"]) == [1.1, 1.8]


def test_rows_that_measured_an_incident_are_listed_apart():
    made = [
        ValidatedRun(id="calm", measured=1.0, predicted=1.1, at_peak=0.5),
        ValidatedRun(id="stalled", measured=4.0, predicted=1.0, at_peak=0.5, incident="stall"),
    ]
    table = ValidatedTable(name="t", rows=tuple(made))
    seen = [summary(view) for view in table.views]
    assert [view["table"] for view in seen] == ["t", "t, undisturbed"]
    assert [view["mape"] for view in seen] == pytest.approx([(0.1 + 0.75) / 2, 0.1])
    assert "t, undisturbed" in str(
        Validation(inputs=Inputs(), tables=(ValidatedTable(name="t", rows=tuple(made)),))
    )


def predicted(tmp_path, **cells):
    (whole,) = validate([table(tmp_path, cells)], jobs=1)
    (run,) = whole.rows
    assert run.predicted, run.reason
    return run


def test_recomputation_that_is_not_printed_is_the_least_that_fits(tmp_path):
    small = {"microbatch": 1, "attention": "flash", "software": "megatron-core"}
    open_, none = (predicted(tmp_path, **small, recompute=mode) for mode in ("unknown", "none"))
    assert open_.predicted == none.predicted, "without any it fits"
    large = {**small, "microbatch": 16}
    open_, full, none = (
        predicted(tmp_path, **large, recompute=mode) for mode in ("unknown", "full", "none")
    )
    assert not none.fits_predicted
    assert open_.fits_predicted
    assert open_.predicted <= full.predicted


def test_a_microbatch_that_is_not_printed_is_a_rank_s_whole_share(tmp_path):
    empty, whole = (predicted(tmp_path, microbatch=size) for size in ("", 16))
    assert empty.predicted == whole.predicted


def test_a_group_of_zero_shards_over_some_of_the_ranks(tmp_path):
    one_node, all_nodes = (
        predicted(tmp_path, zero=1, zero_group=size, software="megatron-core") for size in (8, 32)
    )
    assert one_node.memory_predicted > all_nodes.memory_predicted, "fewer ranks share states"


def test_memory_is_counted_as_the_table_says(tmp_path):
    kinds = ("allocated", "peak", "reserved", "nvidia-smi")
    counted = [
        predicted(tmp_path, memory_gb=30, memory_kind=kind).memory_predicted for kind in kinds
    ]
    assert counted == sorted(counted)
    assert counted[0] < counted[-1]


def test_a_stack_that_prints_what_is_reserved_is_compared_with_that(tmp_path):
    run = {"memory_gb": 30, "software": "torchtitan-compile", "precision": "bf16"}
    peak, reserved = (
        predicted(tmp_path, **run, memory_kind=kind).memory_predicted
        for kind in ("peak", "reserved")
    )
    assert peak == reserved


@pytest.mark.parametrize(
    ("column", "cell"),
    [
        ("dense_layers", "inf"),
        ("dp", 0),
        ("slices", 0),
        ("mtp", 1.5),
        ("wgrad_deferral_limit", "x"),
    ],
)
def test_a_row_that_cannot_be_read_has_a_reason_and_leaves_the_others(tmp_path, column, cell):
    (validated,) = validate([table(tmp_path, {"id": "bad", column: cell, "pp": 2}, {})], jobs=1)
    bad, good = validated.rows
    assert column in bad.reason
    assert good.reason == ""


def test_columns_of_experts_say_nothing_of_a_dense_model(tmp_path):
    columns = {"routing": "uniform", "moe_tokens": "drop"}
    (validated,) = validate([table(tmp_path, {"id": "filled", **columns}, {})], jobs=1)
    filled, empty = validated.rows
    assert filled.predicted == empty.predicted is not None


def test_software_that_nobody_described_runs_by_the_stack_that_is_offered(tmp_path):
    path = table(tmp_path, {"software": "llama3"}, {"software": "paxml"})
    (validated,) = validate([path], jobs=1)
    assert "--stack-of 'llama3=megatron-core'" in validated.rows[0].reason
    assert "--stack-of 'paxml=maxtext'" in validated.rows[1].reason
    (validated,) = validate([path], stack_of={"llama3": "megatron-core"}, jobs=1)
    assert [run.predicted is not None for run in validated.rows] == [True, False]
    assert validated.rows[0].configuration["software"] == "megatron-core"
    with pytest.raises(InputError, match="no row has software = 'llama'; did you mean 'llama3'"):
        validate([path], stack_of={"llama": "megatron-core"})
    with pytest.raises(InputError, match="no stack named 'megatron-cor'"):
        validate([path], stack_of={"llama3": "megatron-cor"})
