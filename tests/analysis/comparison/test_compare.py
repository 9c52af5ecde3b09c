"""`sim compare`: differences add up, stand where they come from, and say who is best and why."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import sim
from sim.analysis.comparison.comparison import Comparison
from sim.analysis.comparison.sharing import SharingComparison
from sim.analysis.comparison.steps import StepComparison
from sim.config.errors import InputError
from sim.interface.cli.main import main
from sim.jobs.sharing.outcome import Outcome
from sim.results.result import Result

QUICK = ("sharing.steps=60", "sharing.workers=4")


@pytest.fixture(scope="module")
def steps() -> StepComparison:
    """A job, the same on a quarter of the network, with another schedule, and of another batch."""
    variants = ("network.bandwidth=50 Gb/s", "plan.schedule=zb-h1", "plan.global_batch=3072")
    compared = sim.compare("megatron-39b", *(f": {variant}" for variant in variants))
    assert isinstance(compared, StepComparison)
    return compared


@pytest.fixture(scope="module")
def ways() -> SharingComparison:
    """A stale synchronous server with a slow worker, with less patience, and the asynchronous."""
    jobs = ("ps-ssp", ": sharing.bound=0", ": sharing.mode=async; sharing.bound=0")
    compared = sim.compare(*jobs, settings=QUICK)
    assert isinstance(compared, SharingComparison)
    return compared


@pytest.mark.parametrize("kind", ["steps", "ways"])
def test_every_part_adds_up_to_the_times_and_their_differences(
    kind: str, request: pytest.FixtureRequest
) -> None:
    compared: Any = request.getfixturevalue(kind)
    if kind == "steps":
        times = compared.seconds
    else:
        runs = compared.outcomes.values()
        times = [run.time * compared.samples / run.samples for run in runs]
    whole = [part for part in compared.parts if part.whole and any(part.seconds)]
    assert whole
    for part in whole:
        assert [sum(own.values()) for own in part.seconds] == pytest.approx(times, rel=1e-9)
        for other, moved in zip(times[1:], part.differences, strict=True):
            assert sum(moved.values()) == pytest.approx(other - times[0], abs=1e-9 * times[0])


def test_a_slower_network_moves_transfers_and_no_compute(steps: StepComparison) -> None:
    for part in steps.parts[:2]:
        slower = part.differences[0]
        assert next(iter(slower)) == "data communication"
        assert slower["compute"] == pytest.approx(0.0, abs=1e-9)
        assert slower["data communication"] > 0.9 * (steps.seconds[1] - steps.seconds[0])


def test_a_schedule_with_fewer_bubbles_wins_by_the_bubble(steps: StepComparison) -> None:
    assert next(iter(steps.parts[0].differences[1])) == "bubble"
    assert steps.seconds[2] < steps.seconds[0]


def test_other_batches_are_compared_by_as_many_tokens(steps: StepComparison) -> None:
    assert steps.scales == pytest.approx([1.0, 1.0, 1.0, 0.5])
    twice = steps.cases[3].result
    assert isinstance(twice, Result)
    assert steps.seconds[3] == pytest.approx(twice.step_time / 2)
    assert steps.title.startswith("As many tokens")


def test_the_best_is_the_shortest_that_fits() -> None:
    small = "device.memory=40 GiB"  # too small for microbatches of 16
    compared = sim.compare(
        "megatron-1.7b: plan.microbatch=1", ": plan.microbatch=16", settings=[small]
    )
    assert isinstance(compared, StepComparison)
    fits = {row["name"]: row["fits"] for row in compared.records}
    assert list(fits.values()) == [True, False]
    assert compared.seconds[1] < compared.seconds[0]
    assert compared.best is compared.cases[0]
    assert "is shorter, but does not fit" in compared.reason


def test_a_difference_that_is_partly_correction_is_said_to_be(steps: StepComparison) -> None:
    jobs = sim.compare("llama3-8b-torchtitan", ": plan.precision=fp8")
    assert isinstance(jobs, StepComparison)
    simulated, expected = (
        f"({100.0 * (1.0 - own[1] / own[0]):.1f} %) shorter"
        for own in (jobs.seconds, jobs.expected)
    )
    assert simulated != expected
    assert f"{simulated} than llama3-8b-torchtitan as simulated:" in jobs.reason
    own, first = (
        f"{case.name} by {100.0 * (case.result.get('step_time_expected') / seconds - 1.0):+.1f} %"
        for case, seconds in zip(jobs.cases[::-1], jobs.seconds[::-1], strict=True)
    )
    assert f"{expected}, because measured runs correct {own}, {first}." in jobs.reason
    assert expected.startswith(f"({jobs.table[2][2].strip('-')}")
    assert "measured runs correct" not in steps.reason


def test_the_timelines_are_drawn_to_one_scale(steps: StepComparison) -> None:
    axes = steps.plot().axes
    assert [one.get_title(loc="left") for one in axes] == steps.names
    ends = {one.get_xlim() for one in axes}
    longest = max(case.result.timeline.end for case in steps.cases)
    assert ends == {(0.0, longest)}


def test_ways_to_share_are_drawn_against_time_samples_and_bytes(ways: SharingComparison) -> None:
    axes = ways.plot().axes
    assert [one.get_xlabel().split()[0] for one in axes[-3:]] == ["simulated", "samples", "sent"]
    assert [line.get_label() for line in axes[2].lines] == ways.names


def test_runs_that_learn_nothing_are_drawn_as_their_first_steps() -> None:
    jobs = ("local-sgd", ": sharing.period=2")
    compared = sim.compare(*jobs, settings=("sharing.steps=4", "sharing.workers=2"))
    assert compared.best.name == "local-sgd"
    assert "nothing is learnt" in compared.reason
    ends = {axes.get_xlim() for axes in compared.plot().axes}
    assert len(ends) == 1


def test_the_first_at_the_loss_is_the_best_and_its_factors_are_those_of_the_times(
    ways: SharingComparison,
) -> None:
    rows = {row["name"]: row for row in ways.records}
    reached = {name: row["time_to_target"] for name, row in rows.items()}
    assert all(reached.values())
    assert reached[ways.best.name] == min(reached.values())
    for name, outcome in ways.outcomes.items():
        assert outcome.time_to(ways.loss) == reached[name]
    asked = sim.compare(*(case.result for case in ways.cases), target=1e-9)
    assert [row["time_to_target"] for row in asked.records] == [None, None, None]
    own = [replace(case.result, target=1e-9) for case in ways.cases]  # of all their scenarios
    assert sim.compare(*own).records == asked.records
    assert "None reaches" in asked.reason


def test_rent_has_a_column_of_its_own_where_workers_learn() -> None:
    keys = ("sharing.steps=2", "sharing.workers=2", "sharing.learning.task=perceptron")
    jobs = ("gpt2-1.5b-workers", ": sharing.batch=2")
    compared = sim.compare(*jobs, settings=(key for key in keys))
    assert f"$ to {compared.loss:.3g}" in compared.table[0]
    assert {len(row) for row in compared.table} == {len(compared.table[0])}
    assert all(case.result.task == "perceptron" for case in compared.cases)


def test_patience_with_a_slow_worker_is_seen_as_less_waiting(ways: SharingComparison) -> None:
    impatient, never = (own["waiting"] for own in ways.parts[0].differences)
    assert impatient > 0.0 > never


def test_results_kept_as_json_compare_like_their_scenarios(tmp_path: Path) -> None:
    for scenario, words in (("megatron-1.7b", ()), ("ps-ssp", ("--set", QUICK[0]))):
        file = tmp_path / f"{scenario}.json"
        file.write_text(_run("run", scenario, "--json", *words).stdout.splitlines()[-1])
        settings = [word for word in words if word != "--set"]
        fresh = sim.compare(scenario, scenario, settings=settings)
        kept = sim.compare(str(file), *(case.result for case in fresh.cases[:1]))
        before, now = fresh.to_dict(), kept.to_dict()
        for title, moved in now["differences"].items():
            assert not any(v for own in moved.values() for v in own.values()), title
        for key in before["cases"][0].keys() - {"name", "dollars", "dollars_per_million_tokens"}:
            assert now["cases"][0][key] == now["cases"][1][key] == before["cases"][0][key]


def test_settings_on_a_stored_result_are_those_on_its_scenario(tmp_path: Path) -> None:
    """Inputs leave out the schedule 1f1b, a default; the scenario has another schedule."""
    name, run_with, then = "gpt3-175b-megatron", "plan.schedule=1f1b", "plan.microbatch=2"
    file = tmp_path / "kept.json"
    file.write_text(_run("run", name, "--set", run_with, "--json").stdout.splitlines()[-1])
    kept = sim.compare(str(file), f": {then}").results
    fresh = sim.compare(f"{name}: {run_with}", f"{name}: {run_with}; {then}").results
    assert [one.step_time for one in kept] == [one.step_time for one in fresh]
    assert kept[1].inputs == fresh[1].inputs


def test_the_command_prints_what_python_gives(tmp_path: Path) -> None:
    picture = tmp_path / "both.png"
    words = ["megatron-1.7b", ": plan.microbatch=8; plan.recompute=none", "--picture", str(picture)]
    printed = json.loads(_run("compare", *words, "--json").stdout.splitlines()[-1])
    here = sim.compare(*words[:2])
    assert printed == json.loads(json.dumps(here.to_dict()))
    assert picture.read_bytes().startswith(b"\x89PNG")
    frame = here.to_frame()
    assert list(frame.index) == ["megatron-1.7b", "plan.microbatch=8; plan.recompute=none"]
    first, shown = frame.iloc[0], here.cases[0].result
    assert isinstance(shown, Result)
    for bound in ("low", "high"):
        ratio = getattr(shown, f"step_time_{bound}") / shown.step_time
        known = ratio * first["dollars_per_million_tokens"]
        assert first[f"dollars_{bound}"] == pytest.approx(known)
    page = here._repr_html_()
    assert here.reason.split(":")[0] in page.replace("&#x27;", "'")
    assert page.count("data:image/png") == 1


def test_a_mapping_names_the_jobs_and_equal_names_are_numbered() -> None:
    scenario = sim.load("megatron-1.7b")
    named: Comparison = sim.compare({"one": scenario, "two": sim.run(scenario)})
    assert named.names == ["one", "two"]
    assert sim.compare(scenario, scenario).names == ["megatron-1.7b (1)", "megatron-1.7b (2)"]
    assert "take equally long" in named.reason


def test_settings_alone_are_those_of_the_first_scenario_or_result() -> None:
    scenario = sim.load("gpt2-one-gpu", {"plan.microbatch": 2})
    changed = sim.load("gpt2-one-gpu", {"plan.microbatch": 2, "plan.recompute": "full"})
    expected = [sim.run(job).step_time for job in (scenario, changed)]
    for first in (scenario, sim.run(scenario)):
        found: Comparison = sim.compare(first, ": plan.recompute=full")
        assert [case.result.step_time for case in found.cases] == expected


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["megatron-1.7b"], "1 to compare; give two or more"),
        (["megatron-1.7b", "plan.tp=4"], "write NAME, 'NAME: KEY=VALUE"),
        ([": plan.tp=4", "megatron-1.7b"], "names no job"),
        (["megatron-1.7b", "megatron-1.7b:"], "names no job"),
        (["megatron-1.7b", "ps-ssp"], "compare jobs of one kind"),
        (["qwen3-32b-answers", "grpo-8b"], "compare jobs of one kind"),
        (["megatron-1.7b", ": plan.microbach=8"], "did you mean 'microbatch'?"),
        (["megatron-1.7b", "megatron-1.7c"], "no scenario named"),
        (["megatron-1.7b", ": plan.microbatch=8", "--target", "2"], "have no loss"),
        (["result.json", "megatron-1.7b"], "is no result of this version"),
        (["runs.json", "megatron-1.7b"], "holds several runs in one answer"),
        (["cost.json", "megatron-1.7b"], "another question than `sim run`; only single runs"),
        (["text.json", "megatron-1.7b"], "is no JSON"),
        (["result.json: plan.tp=4", "megatron-1.7b"], "takes no settings"),
        (["none.json", "megatron-1.7b"], "cannot be read"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_a_line(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("result.json").write_text('{"step_time": 3.0}')
    Path("runs.json").write_text('{"schema": 1, "scenario": "a", "samples": 20, "median": 3.0}')
    Path("cost.json").write_text('{"schema": 1, "dollars": 3.0}')
    Path("text.json").write_text("step time: 3 s")
    refused = CliRunner().invoke(main, ["compare", *words])
    assert refused.exit_code == 2
    assert said in refused.stderr
    assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ("megatron-1.7b", ": device.memory=lots"),
        ("megatron-1.7b", ": plan.tp=7"),
        ("ps-ssp", ": device.memory=lots"),
        ("megatron-1.7b", "ps-ssp"),
        ("megatron-1.7b", ": plan.tp=4", "result.json"),
    ],
)
def test_a_mistake_in_the_last_job_is_told_before_the_first_runs(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[object] = []
    monkeypatch.setattr("sim.kind.answer", ran.append)
    with pytest.raises(InputError):
        sim.compare(*words, settings=QUICK if words[0] == "ps-ssp" else ())
    assert not ran


def _run(*words: str) -> Any:
    result = CliRunner().invoke(main, list(words))
    assert result.exit_code == 0, result.output
    return result


def test_outcomes_that_are_compared_are_those_of_runs(ways: SharingComparison) -> None:
    alone = sim.run(sim.load("ps-ssp", QUICK))
    assert isinstance(alone, Outcome)
    assert ways.outcomes["ps-ssp"].loss == alone.loss


def test_long_settings_are_told_by_their_place_and_a_legend() -> None:
    """Columns and titles of a dozen settings would hide the numbers."""
    settings = "sharing.mode=async; sharing.bound=0; sharing.seed=1; sharing.overhead=20 us"
    answer = sim.compare("ps-ssp", f": {settings}", settings=QUICK)
    assert answer.names == ["ps-ssp", "job 2"]
    assert str(answer).startswith(f"job 2: {settings}\n\n")
    assert settings in answer._repr_html_()
    assert answer.to_dict()["asked"] == {"job 2": settings}


def test_slow_paces_have_three_digits() -> None:
    """Sites far apart take minutes a step: 0.43 samples a second are neither none nor one."""
    slow = ("sharing.overhead=10 s", "sharing.steps=2", "sharing.workers=2", "sharing.batch=1")
    answer = sim.compare("ps-async", ": sharing.seed=1", settings=slow)
    assert isinstance(answer, SharingComparison)
    pace = answer.outcomes["ps-async"].samples_per_second
    assert 0 < pace < 1
    assert f"{pace:.3g}" in str(answer)
    assert f"{pace:.3g}" in str(answer.outcomes["ps-async"])


def test_a_target_below_zero_is_refused() -> None:
    asked = CliRunner().invoke(main, ["compare", "ps-ssp", ": sharing.bound=0", "--target", "-1"])
    assert asked.exit_code == 2
    assert "not positive" in asked.output


def test_the_exit_code_says_where_nothing_fits_and_one_that_does_is_enough() -> None:
    words = ["compare", "megatron-1.7b: plan.microbatch=1", ": plan.microbatch=16"]
    small = ["--set", "device.memory=40 GiB"]
    assert CliRunner().invoke(main, [*words, *small]).exit_code == 0
    small = ["--set", "device.memory=10 GiB"]
    refused = CliRunner().invoke(main, [*words, *small])
    assert refused.exit_code == 3
    assert refused.stderr == ""


def test_unlike_rates_of_learning_and_warnings_of_runs_are_noted() -> None:
    """A mean of eight gradients at the rate of one goes an eighth as far for each of them."""
    jobs = ("ps-async", ": sharing.mode=bsp")
    quick = ("sharing.steps=6", "sharing.learning.task=perceptron")
    unlike = sim.compare(*jobs, settings=quick)
    (note,) = unlike.notes
    assert "(ps-async 0.05, sharing.mode=bsp 0.00625), which may matter more" in note
    assert f"note: {note}" in str(unlike)
    assert unlike.to_dict()["notes"] == [note]
    alike = sim.compare(*jobs, settings=(*quick, "sharing.learning.scaling=linear"))
    assert alike.notes == []
    late = sim.compare("local-sgd", ": sharing.period=9", settings=("sharing.workers=2",))
    assert late.notes == [f"sharing.period=9: {late.cases[1].result.warnings[0]}"]


def test_a_table_that_says_the_same_again_is_left_out() -> None:
    """Without a pipeline the critical path is one rank's step, and there is one stage."""
    alone = str(sim.compare("megatron-1.7b", ": plan.microbatch=8"))
    assert (alone.count(", against megatron-1.7b"), "-0.000" in alone) == (1, False)
    piped = str(sim.compare("megatron-39b", ": plan.microbatch=2"))
    assert "On the critical path, by stage, against megatron-39b" in piped


def test_days_and_rent_of_tokens_are_those_of_sim_cost() -> None:
    """days = tokens / (tokens a second) / 86,400; rent = days x 24 x GPUs x price of an hour."""
    jobs = "megatron-39b", ": topology=dgx-h100-ndr"
    both = sim.compare(*jobs, tokens=500e9)
    for row, topology in zip(both.records, ("dgx-a100-hdr", "dgx-h100-ndr"), strict=True):
        alone = sim.cost(sim.load("megatron-39b", {"topology": topology}), tokens=500e9).bounds
        assert alone is not None
        for name, other in (("days", "days"), ("rent", "dollars")):
            bounds = [row[f"{name}_{bound}"] for bound in ("low", "expected", "high")]
            assert bounds == pytest.approx(
                [alone[other][key] for key in ("low", "expected", "high")]
            )
    with pytest.raises(InputError, match="--tokens: workers that share updates train to a loss"):
        sim.compare("ps-bsp", "ps-async", tokens=1e9)


def test_models_without_tokens_are_told_in_samples() -> None:
    head, *_ = sim.compare("dlrm", ": plan.microbatch=512").table
    assert {"samples/s", "$/1e6 samples"} <= {*head}
    assert "1 billion samples in" in str(sim.cost("dlrm", tokens=1e9))


def test_a_comparison_for_samples_names_them_and_gives_their_time_as_sim_cost_does() -> None:
    compared = sim.compare("dlrm", ": plan.global_batch=131072", tokens=1e9)
    assert compared.title == "As many samples as a step of dlrm, 2 side by side"
    assert compared.to_dict()["tokens"] == 1e9
    head, row, _ = compared.table
    assert head[-2] == "seconds of 1 billion samples (90 %)"
    assert f"1 billion samples in {row[-2].partition(' ')[0]} seconds" in str(
        sim.cost("dlrm", tokens=1e9)
    )


def test_samples_are_not_held_against_tokens() -> None:
    said = "megatron-1.7b: counts tokens, but jobs before it count samples"
    for tokens in (None, 1e9):
        with pytest.raises(InputError, match=said):
            sim.compare("dlrm", "megatron-1.7b", tokens=tokens)


def test_days_of_an_unknown_rate_are_refused() -> None:
    unknown = replace(sim.run("megatron-1.7b"), tokens_per_second=0.0)
    with pytest.raises(InputError, match="the rate of its tokens is unknown; leave --tokens out"):
        sim.compare(unknown, "megatron-1.7b", tokens=1e9)
    assert sim.compare(unknown, "dlrm").title == "A step of each, 2 side by side"
