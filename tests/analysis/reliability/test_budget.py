"""Budgets: laws of when a training is done, and what a date needs."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import sim
from sim import kind
from sim.analysis.reliability.failures import load
from sim.config.errors import InputError
from sim.config.units import DAY, HOUR
from sim.engine.training_run import Conduct, Fault, durations, simulate
from sim.interface.cli.main import main

JOB, TOKENS = "megatron-39b", 20e9
RECORD = Path(__file__).parents[2] / "jobs/capturing/recordings/ddp-2.12.json.gz"


def test_without_failures_half_of_all_trainings_take_what_cost_expects() -> None:
    plain, likely = sim.budget(JOB, tokens=TOKENS), sim.cost(JOB, tokens=TOKENS).bounds
    assert likely is not None
    assert plain.after(0.5) / DAY == pytest.approx(likely["days"]["expected"], rel=0.01)
    assert plain.share == 1.0
    low, high = (plain.after(chance) / DAY for chance in (0.05, 0.95))
    assert low == pytest.approx(likely["days"]["low"], rel=0.03)
    assert high == pytest.approx(likely["days"]["high"], rel=0.03)


def test_more_certainty_takes_longer_and_failures_do_too() -> None:
    plain = sim.budget(JOB, tokens=TOKENS)
    broken = sim.budget(JOB, tokens=TOKENS, failures="llama3")
    assert list(plain.done.values()) == sorted(plain.done.values())
    assert all(days > plain.done[chance] for chance, days in broken.done.items())
    assert 0.9 < broken.share < 1.0
    assert broken.dollars["0.5"] == pytest.approx(broken.done["0.5"] * 24 * broken.rent)


def test_times_are_said_in_units_of_their_size() -> None:
    def said(tokens: str, *words: str) -> str:
        return CliRunner().invoke(main, ["cost", JOB, "--tokens", tokens, *words]).output

    assert "Done within 10 minutes" in (short := said("1e7", "--deadline", "10 min"))
    assert re.match(r"10 million tokens on 512 GPUs: done in \d\d\.\d seconds with 50 %", short)
    assert "chance  seconds  dollars" in short
    long = said("500B", "--deadline", "3 weeks")
    assert "Done within 3 weeks: less than 1% likely." in long
    assert " days with 50 %" in long


@pytest.mark.parametrize("hours", [0.5, 50.0])
def test_a_duration_has_just_the_productive_time_that_is_asked_for(hours: float) -> None:
    faults = [Fault(name="fault", rate=1 / 7200)]
    conduct = Conduct(interval=600.0, stop=10.0, detection=30.0, restart=1000.0)
    goal = hours * 3600
    (seconds,) = durations(
        faults, conduct, productive=[goal], longest=1e9, rng=np.random.default_rng(3)
    )
    ledger = simulate(faults, conduct, seconds=seconds, rng=np.random.default_rng(3))
    assert ledger.seconds["productive"] == pytest.approx(goal, rel=1e-9)


def test_who_needs_a_month_to_come_back_is_done_in_time_only_if_nothing_fails() -> None:
    """By the law of rare events with the chance exp(-rate * time)."""
    settings = {"recovery.restart": "30 d"}
    found = sim.budget(JOB, tokens=TOKENS / 4, failures="llama3", settings=settings)
    alone = sim.budget(JOB, tokens=TOKENS / 4)
    lucky = np.exp(-np.array(alone.times) / found.between).mean()
    done = np.mean(np.array(found.times) < 2 * alone.after(0.99))
    assert done == pytest.approx(lucky, abs=3 * 0.015)
    assert found.done["0.9"] > 10.0
    assert "never" in str(found)


# --- Long repairs without spares: 321 causes of Llama 3's table break a node ----------------------


@pytest.mark.parametrize("days", [5.0, 20.0, 80.0])
def test_a_training_waits_at_all_with_the_chance_of_a_poisson_process(days: float) -> None:
    breaks = Fault(name="break", rate=1 / (40 * DAY), breaks=True)
    conduct = Conduct(interval=HOUR, stop=0.0, detection=0.0, restart=0.0, repair=14 * DAY)
    goal = [days * DAY]
    times = [
        durations([breaks], conduct, productive=goal, longest=1e9, rng=np.random.default_rng(seed))[
            0
        ]
        for seed in range(1000)
    ]
    waited = np.mean(np.array(times) > goal[0] + 13 * DAY)
    assert waited == pytest.approx(1.0 - np.exp(-days / 40.0), abs=3 * 0.016)


WAITS = {"recovery.spares": 0, "recovery.repair": "14 d", "recovery.storage": "1 TB/s"}


@pytest.mark.parametrize("tokens", [20e9, 100e9])
def test_days_of_rare_long_repairs_are_those_of_poissons_breaks(tokens: float) -> None:
    """As many breaks as a Poisson process has while training runs, each of which waits for a
    repair. Checkpoints, detection, restart and lost work, which this leaves out, take up to 4 %."""
    found = sim.budget(JOB, tokens=tokens, failures="llama3", settings=WAITS)
    rng = np.random.default_rng(1)
    trained = rng.choice(sim.budget(JOB, tokens=tokens).times, 20_000)
    breaks = rng.poisson(trained * 321 / (54 * DAY) * 512 / 16384)
    by_hand, times = trained + breaks * 14 * DAY, np.array(found.times)
    for days in np.quantile(by_hand, (0.1, 0.3, 0.5, 0.7, 0.9)):
        share = np.mean(by_hand < days)
        assert np.mean(times < days) < share + 0.045
        assert np.mean(times < 1.04 * days) > share - 0.045
    assert found.after(0.9) == pytest.approx(np.quantile(by_hand, 0.9), rel=0.06)


def test_rates_are_those_of_a_device_and_year() -> None:
    """419 unexpected interruptions in 54 days on 16,384 GPUs (Llama 3, table 5)."""
    table = load("llama3")
    assert table.per_device_year == pytest.approx(419 / 16384 * 365.25 / 54)
    assert table.between(16384) == pytest.approx(54 * DAY / (419 + 47))


def test_the_fewest_gpus_meet_a_date_as_they_do_by_themselves_and_fewer_do_not() -> None:
    done = sim.budget(JOB, tokens=TOKENS, failures="llama3").after(0.9)
    asked = {"tokens": TOKENS, "failures": "llama3", "chance": 0.9}
    found = sim.budget(JOB, deadline=0.7 * done, **asked)
    assert found.within == 0.0
    assert found.gpus < found.needed["gpus"] < found.keeping["gpus"]
    assert found.keeping["batch"] == found.batch == 1536 != found.needed["batch"]
    for told in (found.needed, found.keeping):
        settings = {"gpus": int(told["gpus"]), "plan.global_batch": int(told["batch"])}
        again = sim.budget(JOB, settings=settings, **asked)
        assert again.done["0.9"] == told["days"] <= 0.7 * done / DAY
        assert again.dollars["0.9"] == told["dollars"]
    fewer = {"gpus": int(found.needed["gpus"]) - 16}
    fewer["plan.global_batch"] = fewer["gpus"] // 16 * 4 * round(1536 / (fewer["gpus"] // 16 * 4))
    assert sim.budget(JOB, settings=fewer, **asked).done["0.9"] > 0.7 * done / DAY


def test_the_fewest_gpus_lie_between_those_that_keep_the_batch_where_some_fill_no_nodes() -> None:
    """Of 24, 30 and 32 replicas on 2 GPUs each 30 cannot run; 28 divide 476 sequences."""
    job = {"model": "llama3-8b", "topology": "dgx-h100-ndr", "gpus": 48,
           "plan": {"tp": 2, "global_batch": 480}, "change": {"model.layers": 4}}  # fmt: skip
    alone = sim.budget(kind.described(job), tokens=TOKENS)
    found = sim.budget(kind.described(job), tokens=TOKENS, deadline=0.95 * alone.after(0.9))
    assert (found.needed["gpus"], found.needed["batch"]) == (56, 476)
    assert (found.keeping["gpus"], found.keeping["batch"]) == (64, 480)
    assert "56 GPUs with a batch of 476, not 480, which take" in str(found)


def test_a_budget_pays_the_gpus_that_cost_no_more_and_the_soonest_are_the_most() -> None:
    own = sim.budget(JOB, tokens=TOKENS)
    found = sim.budget(JOB, tokens=TOKENS, money=1.0001 * own.dollars["0.9"])
    assert found.affordable[-1] == found.soonest["gpus"] == own.gpus
    assert found.soonest["dollars"] == pytest.approx(own.dollars["0.9"])
    assert found.soonest["days"] == pytest.approx(own.done["0.9"])
    less = sim.budget(JOB, tokens=TOKENS, money=0.9999 * own.dollars["0.9"])
    assert less.affordable == found.affordable[:-1]
    assert not sim.budget(JOB, tokens=TOKENS, money=1.0).affordable


def test_a_budget_without_a_scenario_is_of_the_model_and_cluster_that_are_named() -> None:
    named = ["--model", "llama3-8b", "--topology", "dgx-h100-ndr", "--gpus", "16"]
    words = [*named, "--set", "plan.global_batch=64", "--tokens", "1B", "--failures"]
    asked = ["cost", *words, "--set", "recovery.restart=20 min", "--json"]
    told = json.loads(CliRunner().invoke(main, asked).output)
    assert (told["gpus"], told["inputs"]["model"]) == (16, "llama3-8b")
    assert any("restart in 1,200 s" in said for said in told["assumed"])


def test_the_command_and_its_page_say_when_for_what_and_with_how_many(tmp_path: Path) -> None:
    words = ("cost", JOB, "--tokens", "20B", "--deadline", "2 days", "--chance", "90%")
    page = tmp_path / "boss.md"
    asked = [*words, "--failures", "--price", "2.5 USD/h", "--report", str(page)]
    shown = CliRunner().invoke(main, asked)
    assert shown.exit_code == 0, shown.output
    for text in (shown.output, page.read_text()):
        assert "20 billion tokens on 512 GPUs: done in" in text
        assert "one interruption in" in text
        needed = (
            r"With 90% chance the job needs \d+ GPUs.*, which take .* and cost [\d,]+ dollars\."
        )
        assert re.search(needed, text)
        for said in (JOB, "512 GPUs (A100 80GB SXM)", "tp 8, pp 2, dp 32", "2.5 USD/h"):
            assert said in text
    assert not re.search(r"^#+ *$", page.read_text(), re.MULTILINE)
    told = json.loads(CliRunner().invoke(main, [*words, "--json"]).output)
    assert set(told["done"]) == {"0.1", "0.5", "0.9"}


@pytest.mark.long
def test_gpus_whose_memory_is_too_small_meet_no_date() -> None:
    """Four GPUs would be in time, but hold all of a 70B model each."""
    job = sim.load("llama2-70b-fsdp", {"plan.global_batch": 256})
    found = sim.budget(job, tokens=1e9, deadline=300 * DAY)
    gpus = int(found.keeping["gpus"])
    fits = [
        sim.run(job, {"gpus": count, "plan.dp": count // 4}).fits for count in (gpus, gpus // 2)
    ]
    assert fits == [True, False]


@pytest.mark.parametrize("tokens", [0.0, -5.0])
def test_a_budget_is_of_a_positive_number_of_tokens(tokens: float) -> None:
    with pytest.raises(InputError, match="is not positive"):
        sim.budget(JOB, tokens=tokens)


@pytest.mark.parametrize("deadline", [0.0, -1.0])
def test_a_deadline_is_a_positive_number_of_seconds(deadline: float) -> None:
    with pytest.raises(InputError, match="is not positive"):
        sim.budget(JOB, tokens=TOKENS, deadline=deadline)


def test_a_recording_has_no_replicas_to_add_for_a_deadline() -> None:
    settings = {"topology": "dgx-h100-ndr"}
    with pytest.raises(InputError, match="other numbers of replicas"):
        sim.budget(RECORD, tokens=TOKENS, deadline=DAY, settings=settings)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--chance", "120%"), "1.2 is no chance"),
        (
            ("--tokens", "1M", "--failures"),
            "1,000,000 tokens are fewer than one update has: 3,145,728",
        ),
        (("--tokens", "500"), "500 tokens are fewer than one update has"),
        (("--budget", "400X"), "write a positive number such as 400000, 1.5e9 or 2T (k, M, B, T)"),
        (("--price", "2.5"), "--price: '2.5' has no unit; write it like '2.5 USD/h'"),
        (("--failures", "nosuch"), "no table of failures named 'nosuch'"),
        (("--deadline", "soon"), "write it like '3 weeks'"),
        (("--deadline", "3 weeks", "--goodput", "0.9"), "follows from --failures"),
        (("--deadline", "3 weeks", "--set", "recovery.restart=10 min"), "add --failures"),
    ],
)
def test_a_budget_that_makes_no_sense_is_a_line(words: tuple[str, ...], said: str) -> None:
    refused = CliRunner().invoke(main, ["cost", JOB, "--tokens", "1B", *words])
    assert refused.exit_code == 2
    assert said in refused.output
