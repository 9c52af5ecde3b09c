"""`sim run` of a scenario that shares updates: JSON, trace, picture, report."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import sim
from notebooks.studies.nine_ways import nine_ways
from sim import kind
from sim.analysis.comparison.stored import stored
from sim.analysis.samples.seeds import Seeds
from sim.analysis.sweeps import table
from sim.analysis.sweeps.answer import Sweep
from sim.config.errors import InputError
from sim.config.readable import human_seconds
from sim.interface.cli.files import DOES_NOT_FIT
from sim.interface.cli.main import main
from sim.jobs.sharing.outcome import Outcome


def test_a_run_leaves_json_trace_picture_and_report(tmp_path: Path) -> None:
    files = {kind: tmp_path / name for kind, name in FILES.items()}
    asked = [word for kind, path in files.items() for word in (f"--{kind}", str(path))]
    result = CliRunner().invoke(
        main, ["run", "ps-ssp", "--json", "--set", "sharing.steps=12", *asked]
    )
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout.splitlines()[-1])
    assert answer["updates"] == 8 * 12
    assert sum(answer["shares"].values()) == 1.0 or abs(sum(answer["shares"].values()) - 1) < 1e-9
    assert answer["staleness"]["histogram"]
    assert answer["links"][0]["bytes"] > 0
    assert answer["label"].endswith("not a forecast of a large model's loss")
    trace = json.loads(files["trace"].read_text())
    names = {event["name"] for event in trace["traceEvents"]}
    assert any("push" in name for name in names)
    assert files["picture"].read_bytes().startswith(b"\x89PNG")
    page = files["report"].read_text()
    assert all(f'data-chart="{chart}"' in page for chart in ("timeline", "learning"))
    assert "worker 0" not in files["timeline"].read_text()


FILES = {
    "trace": "trace.json",
    "picture": "picture.png",
    "report": "report.html",
    "timeline": "spans.csv",
}


def test_text_says_what_kind_of_loss_it_is() -> None:
    shown = CliRunner().invoke(main, ["run", "ps-async", "--set", "sharing.steps=5"]).stdout
    assert "Where the workers' time goes" in shown
    assert "not a forecast" in shown


def test_text_shows_the_staleness_and_who_waits_most() -> None:
    shown = CliRunner().invoke(main, ["run", "ps-ssp", "--set", "sharing.steps=30"]).stdout
    blocks = dict(block.split("\n", 1) for block in shown.split("\n\n") if "\n" in block)
    counts = [line.split("  ")[2:] for line in blocks["Updates by staleness"].splitlines()]
    assert sum(int(cells[0] or cells[1]) for cells in counts) == 8 * 30
    assert "(worker 0)" in blocks["Where the workers' time goes, in the mean"]


def test_stragglers_that_keep_workers_apart_gain_time() -> None:
    shown = CliRunner().invoke(main, ["run", "ps-async", "--set", "sharing.steps=40"]).stdout
    assert "gained by stragglers" in shown
    assert "lost to stragglers" not in shown


def test_the_same_seed_gives_the_same_bytes() -> None:
    few = ("--set", "sharing.until=2 s")
    runs = [
        json.loads(
            CliRunner()
            .invoke(main, ["run", "gossip-ad-psgd", *few, "--json"])
            .stdout.splitlines()[-1]
        )
        for _ in range(2)
    ]
    for run in runs:
        del run["wall_seconds"]
    assert runs[0] == runs[1]


def test_a_picture_says_how_much_of_the_run_it_shows_and_names_what_travels() -> None:
    part = sim.run(sim.load("gossip-sgp", {"sharing.steps": 40, "sharing.workers": 4}))
    assert isinstance(part, Outcome)
    drawn = part.plot()
    axes = drawn.axes[0]
    assert axes.get_title(loc="left") == "gossip-sgp: gossip (push-sum)"
    assert axes.get_title(loc="right").startswith("the first ")
    assert axes.get_title(loc="right").endswith(f"of {human_seconds(part.time)}")
    legend = [text.get_text() for text in drawn.legends[0].get_texts()]
    assert {"with neighbours", "inside workers"} <= set(legend)
    assert not [name for name in legend if name.startswith(("data", "tensor"))]
    short = sim.run(sim.load("gossip-sgp", {"sharing.steps": 3, "sharing.workers": 4}))
    assert short.plot().axes[0].get_title(loc="right").startswith("the run, ")


def test_methods_that_are_compared_carry_their_own_names() -> None:
    compared = nine_ways(workers=2, seconds=0.5)
    assert str(compared.outcomes["ring all-reduce"]).startswith("ring all-reduce: all reduce")


def _asked(*words: str) -> Any:
    result = CliRunner().invoke(main, [*words, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout.splitlines()[-1])


def test_a_run_lies_in_an_interval_which_what_was_measured_of_it_narrows() -> None:
    run = sim.run("ps-async", {"sharing.steps": 5, "sharing.workers": 2})
    assert isinstance(run, Outcome)
    assert run.time_low < run.time_expected < run.time_high
    step = {"forward": "10 ms", "backward": "20 ms", "parameters": 1e6}
    sharing = {"method": "local_sgd", "steps": 5, "times": step}
    measured = {"name": "measured", "topology": "dgx-1-v100", "sharing": sharing}
    alone, two = (
        sim.run(kind.described(measured, {"sharing.workers": workers})) for workers in (1, 2)
    )
    assert alone.get("time_low") == alone.get("time_high") == alone.get("time")
    sent = two.get("time") * two.get("shares")["communication"]
    assert sent > 0.0
    assert two.get("time_high") - two.get("time_low") < 2.0 * sent


def test_sweeps_take_shared_updates_with_their_own_columns() -> None:
    words = ["sweep", "ps-async", "--vary", "sharing.workers=2,4", "--no-store", "--jobs", "1"]
    rows = _asked(*words, "--vary", "sharing.steps=10")["rows"]
    assert [row["sharing.workers"] for row in rows] == [2, 4]
    assert rows[1]["samples"] == 2 * rows[0]["samples"] == 4 * 10 * 32
    for row in rows:
        seconds = [value for key, value in row.items() if key.startswith("seconds.")]
        assert sum(seconds) == pytest.approx(row["time"])
        assert row["fits"]
        assert row["memory.a server"] > 1e8
        run = sim.run(sim.load("ps-async", {k: row[k] for k in ("sharing.workers",)} | STEPS))
        assert isinstance(run, Outcome)
        assert row["time"] == pytest.approx(run.time)  # JSON has 15 digits


def test_a_sweep_may_set_the_method_that_a_file_lacks(tmp_path: Path) -> None:
    file = tmp_path / "open.toml"
    file.write_text('model = "resnet50"\ntopology = "dgx-1-v100"\n[sharing]\nsteps = 2\n')
    swept = sim.sweep(file, {"sharing.method": ["all_reduce", "data_parallel"]}, jobs=1)
    assert list(swept.frame["valid"]) == [True, True]
    with pytest.raises(InputError, match="method is missing"):
        sim.sweep(file, {"sharing.batch": [8, 16]}, jobs=1)


STEPS = {"sharing.steps": 10}


def test_a_sweep_of_seeds_has_their_mean_their_spread_and_differences_of_equal_seeds() -> None:
    slow = {"sharing.straggler": [{"kind": "lognormal", "sigma": 0.4}], **STEPS}
    keys = {"sharing.workers": [2, 4]}
    rows = sim.sweep("ps-async", keys, samples=3, settings=slow, jobs=1).rows
    runs = [
        [
            sim.run("ps-async", {**slow, "sharing.workers": workers, "sharing.seed": seed})
            for seed in range(3)
        ]
        for workers in (2, 4)
    ]
    times = np.array([[run.get("time") for run in own] for own in runs])
    ratios = np.log(times[1] / times[0])
    reach = 2.92 * ratios.std(ddof=1) / 3**0.5  # Student's t, two degrees of freedom
    for row, own in zip(rows, times, strict=True):
        assert row["time"] == row["samples.time.mean"] == pytest.approx(own.mean())
        assert row["samples.time.spread"] == pytest.approx(own.std(ddof=1))
    assert "samples.time.difference" not in rows[0]
    assert rows[1]["samples.time.difference"] == pytest.approx(np.expm1(ratios.mean()))
    assert rows[1]["samples.time.difference_low"] == pytest.approx(np.expm1(ratios.mean() - reach))


def test_a_figure_that_some_points_lack_has_differences_where_the_first_has_it() -> None:
    values = ["perceptron", "none"]
    for tasks in (values, values[::-1]):
        found = sim.sweep("ps-async", {TASK: tasks}, samples=2, settings=STEPS, jobs=1).rows
        assert "samples.time.difference" in found[1]
        assert not any("samples.loss.difference" in row for row in found)


TASK = "sharing.learning.task"


def test_a_sweep_refuses_a_key_that_is_not_there_and_keeps_what_does_not_fit() -> None:
    words = ["sweep", "ps-async", "--no-store", "--vary"]
    refused = CliRunner().invoke(main, [*words, "sharing.workerz=2"])
    assert refused.exit_code == 2
    assert "did you mean" in refused.stderr
    kept = CliRunner().invoke(main, [*words, "model=gpt3-175b", "--jobs", "1", "--json"])
    assert kept.exit_code == DOES_NOT_FIT
    assert json.loads(kept.stdout)["valid"] == 0


def test_cost_of_shared_updates_is_the_time_of_their_samples_on_all_devices() -> None:
    run = sim.run(sim.load("ps-async", {"sharing.steps": 40}))
    assert isinstance(run, Outcome)
    cost = _asked(
        "cost", "ps-async", "--set", "sharing.steps=40", "--tokens", "1e7", "--price", "2 USD/h"
    )
    assert cost["seconds"] == pytest.approx(1e7 / run.samples * run.time)
    assert cost["gpu_hours"] == pytest.approx(cost["seconds"] / 3600 * (8 + 2 * 8))  # and servers'
    assert cost["dollars"] == pytest.approx(2.0 * cost["gpu_hours"])


def test_goodput_takes_workers_that_are_groups() -> None:
    answer = _asked("goodput", "diloco-70b", "--days", "2")
    assert answer["gpus"] == 512
    assert 0.5 < answer["effective_training_time"] < 1.0
    assert answer["tokens"] > 1e9


def test_what_is_learnt_is_a_table_and_a_picture_with_bands(tmp_path: Path) -> None:
    table = tmp_path / "curves.csv"
    few = ("--set", "sharing.steps=5", "--set", "sharing.seed=6")
    picture = tmp_path / "bands.png"
    files = ("--curves", str(table), "--picture", str(picture))
    _asked("run", "ps-async", "--seeds", "2", *few, *files)
    points = pd.read_csv(table)
    second = sim.run(sim.load("ps-async", {"sharing.steps": 5, "sharing.seed": 7}))
    assert isinstance(second, Outcome)
    found = points[points.seed == 7].drop(columns="seed").reset_index(drop=True)
    pd.testing.assert_frame_equal(found, second.curve_frame())
    assert list(found) == ["seconds", "samples", "loss", "bytes", "accuracy"]
    assert found.accuracy.iloc[-1] == second.accuracy
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_curves_of_a_narrow_column_are_as_wide_as_it_and_stacked(tmp_path: Path) -> None:
    path = tmp_path / "narrow.png"
    few = ("--set", "sharing.steps=2", "--set", "sharing.workers=2")
    _asked("run", "ps-async", *few, "--curves", str(path), "--width", "3.4in")
    width, height = (
        int.from_bytes(path.read_bytes()[16:20]),
        int.from_bytes(path.read_bytes()[20:24]),
    )
    assert width == round(3.4 * 150)
    assert height > 2 * width


@pytest.mark.parametrize("seeds", [(), ("--seeds", "2")])
def test_curves_of_what_does_not_learn_are_refused(seeds: tuple[str, ...], tmp_path: Path) -> None:
    nothing = ("--set", "sharing.learning.task=none", "--set", "sharing.steps=2")
    file = str(tmp_path / "x.png")
    refused = CliRunner().invoke(main, ["run", "ps-async", *seeds, *nothing, "--curves", file])
    assert refused.exit_code == 2
    assert "nothing that learns" in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_samples_are_runs_of_other_seeds() -> None:
    few = ("--set", "sharing.steps=5", "--set", "sharing.workers=2")
    drawn = _asked("run", "ps-async", "--samples", "3", *few)["drawn"]
    assert len(set(drawn["time"]["runs"])) == 3
    once = _asked("run", "ps-async", "--set", "sharing.seed=2", *few)
    assert drawn["time"]["runs"][2] == once["time"]
    assert drawn["loss"]["runs"][2] == once["loss"]
    for words, said in (
        (["--samples", "0"], "is not in the range"),
        (["--samples", "2", "--trace", "x.json"], "a single step or run, but --samples plays many"),
    ):
        refused = CliRunner().invoke(main, ["run", "ps-async", *words])
        assert refused.exit_code == 2
        assert said in refused.stderr


def test_seeds_that_never_reach_a_target_count_as_later_than_all_others() -> None:
    common = {"time": 3.0, "samples_per_second": 9.0, "loss": 0.5, "accuracy": None}
    runs: list[Any] = [
        SimpleNamespace(get={"time_to_target": t, **common}.get) for t in (1.0, None, 2.0)
    ]
    some = Seeds(scenario="s", seed=0, runs=tuple(runs))
    assert some.named["time_to_target"].tolist() == [1.0, float("inf"), 2.0]
    assert "accuracy" not in some.named
    none = Seeds(scenario="s", seed=0, runs=(runs[1],))
    assert "time_to_target" not in none.named


@pytest.mark.long
def test_a_run_that_diverges_says_so(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    ask = ["ps-async", "--set", "sharing.learning.task=quadratic", "--set", "sharing.steps=80",
           "--set", "sharing.learning.rate=1e9"]  # fmt: skip
    page = CliRunner().invoke(main, ["run", *ask]).stdout
    assert "loss at the end  diverged" in page
    assert "nan" not in page
    kept = tmp_path / "kept.json"
    kept.write_text(CliRunner().invoke(main, ["run", *ask, "--json"]).stdout)
    answer = json.loads(kept.read_text(), parse_constant=pytest.fail)
    assert answer["loss"] is None
    assert answer["diverged"] is True
    again = stored(kept)
    assert isinstance(again, Outcome)
    assert (again.diverged, str(again).count("diverged"), again.reached(1.0)) == (True, 1, None)
    several = CliRunner().invoke(main, ["run", *ask, "--samples", "2", "--json"]).stdout
    assert json.loads(several, parse_constant=pytest.fail)["diverged"] == 2
    drawn = CliRunner().invoke(main, ["run", *ask, "--samples", "2"]).stdout
    assert drawn.splitlines()[4].split() == ["loss", *["diverged"] * 4]
    assert not recwarn.list


def test_a_sweep_says_where_a_run_diverged() -> None:
    rows = [
        ({}, {"loss": 0.5, "diverged": False, "valid": True}),
        ({}, {"loss": float("nan"), "diverged": True, "valid": True}),
        ({}, {"valid": False}),
    ]
    page = str(Sweep(scenario="mine", frame=table.table(rows)))
    assert [line.split()[1:2] for line in page.splitlines()[1:]] == [
        ["0.5"], ["diverged"], [],
    ]  # fmt: skip


@pytest.mark.long
def test_a_loss_is_reached_where_it_stays() -> None:
    """The first touch of an unstable curve is no answer to when a loss is reached."""
    ask = {"sharing.learning.target": 0.3, "sharing.steps": 60}
    wild = {**ask, "sharing.learning.rate": 1.5}
    outcome: Any = sim.run("ps-async", settings=wild)
    there = outcome.reached(0.3)
    assert outcome.touched(0.3).seconds < there.seconds == outcome.time_to_target
    after = [point.loss for point in outcome.curve if point.seconds >= there.seconds]
    before = [point.loss for point in outcome.curve if point.seconds < there.seconds]
    assert max(after) <= 0.3 < before[-1]
    assert "training is unstable" in str(outcome)
    short: Any = sim.run("ps-async", settings={**wild, "sharing.steps": 28})
    assert (short.time_to_target, short.touched(0.3) is None) == (None, False)
    assert "is not kept" in str(short)
    both = sim.compare("ps-async", short, settings=ask, target=0.3)
    assert any("does not stay there" in note for note in both.notes)
    calm: Any = sim.run("ps-async", settings=ask)
    assert "unstable" not in str(calm)


def test_the_page_says_in_which_precision_steps_are_computed() -> None:
    """[sharing] computes in fp32 unless told otherwise, [plan] does not."""
    page = CliRunner().invoke(main, ["run", "ps-async", "--set", "sharing.steps=2"]).stdout
    (line,) = [line for line in page.splitlines() if line.startswith("  precision")]
    assert line.split("  ")[-1] == "pytorch-ddp, momentum, 32 samples an update"
    assert "fp32" in line
    half = {"sharing.precision": "fp16", "sharing.steps": 2}
    answer = sim.run("ps-async", settings=half).to_dict()
    assert (answer["inputs"]["precision"], answer["inputs"]["batch"]) == ("fp16", 32)
    both = sim.compare("ps-async", ": sharing.precision=fp16", settings={"sharing.steps": 2})
    assert any("computed in different precisions" in note for note in both.notes)


@pytest.mark.parametrize(("method", "samples"), [("ad_psgd", 32), ("d_psgd", 32), ("", 7 * 32)])
def test_the_samples_of_an_update_are_those_that_the_run_has_counted(
    method: str, samples: int
) -> None:
    """An update of gossip is a step of one worker; an all-reduce updates 7 workers at once."""
    way = {"method": "gossip", "algorithm": method} if method else {"method": "all_reduce"}
    table = {**way, "workers": 7, "steps": 3}
    job = {"model": "resnet50", "topology": "dgx-1-v100", "sharing": table}
    answer: Any = sim.run(kind.described(job))
    assert answer.inputs.batch == samples == answer.samples / answer.updates
