"""Goodput: the job-level simulation against closed forms and against Llama 3's 54 days."""

import json
from dataclasses import replace
from math import gamma
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import sim
from sim import questions
from sim.analysis.reliability import failures
from sim.analysis.reliability.goodput import (
    conduct_of,
    daly,
    effective,
    expected_share,
    of_pace,
    run,
    young,
)
from sim.config.errors import InputError
from sim.config.units import DAY, HOUR
from sim.engine.training_run import Conduct, Fault, Ledger, simulate
from sim.interface.cli.main import main
from sim.kind import load
from sim.results.formatting import large
from sim.scenario.setup import from_scenario

CONDUCT = Conduct(interval=600.0, stop=10.0, detection=60.0, restart=300.0)
MONTH = 30 * DAY


def ledger(*faults: Fault, conduct: Conduct = CONDUCT, days: float = 30.0, seed: int = 1) -> Ledger:
    return run(faults, conduct, days, seed)


def every(seconds: float, **more: object) -> Fault:
    return Fault(name="fault", rate=1.0 / seconds, **more)  # type: ignore[arg-type]


def test_without_faults_only_checkpoints_cost() -> None:
    seconds = ledger().seconds
    assert seconds["productive"] / MONTH == pytest.approx(600 / 610, rel=1e-3)
    assert seconds["productive"] + seconds["checkpoints"] == pytest.approx(MONTH)


@pytest.mark.parametrize("conduct", [
    CONDUCT,
    replace(CONDUCT, persist=900.0),
    replace(CONDUCT, spares=1, repair=2 * DAY),
    replace(CONDUCT, replicas=8, elastic=True, repair=2 * DAY),
])  # fmt: skip
def test_the_ledger_adds_up_whatever_happens(conduct: Conduct) -> None:
    faults = (
        every(2 * DAY, breaks=True),
        every(3 * HOUR),
        every(DAY, slows=1.5),
        every(DAY, planned=True),
        every(3 * DAY, shape=0.7, components=50, breaks=True),
    )
    seconds = ledger(*faults, conduct=conduct).seconds
    assert sum(seconds.values()) == pytest.approx(MONTH)
    assert min(seconds.values()) >= -1e-6
    assert seconds["slowdown"] > 0


def test_one_fault_costs_the_work_since_the_last_checkpoint_and_a_restart() -> None:
    """At 1000 s: 600 s trained, 10 s saved, 390 s lost; detection and restart take 0 and 300 s."""

    class At1000(np.random.Generator):
        def exponential(self, mean: float) -> float:  # type: ignore[override]
            return 1000.0

    once = Fault(name="once", rate=1e-3)
    conduct = replace(CONDUCT, detection=0.0)
    seconds = simulate([once], conduct, seconds=1500.0, rng=At1000(np.random.PCG64(0))).seconds
    assert seconds["lost work"] == pytest.approx(390.0)
    assert seconds["restart"] == pytest.approx(300.0)
    assert seconds["productive"] == pytest.approx(600.0 + 200.0)


@pytest.mark.parametrize("between", [2 * HOUR, 5 * HOUR, 20 * HOUR])
def test_the_simulation_agrees_with_dalys_expectation(between: float) -> None:
    shares = [effective([every(between)], CONDUCT, 60.0, seed) for seed in range(4)]
    assert np.mean(shares) == pytest.approx(expected_share(CONDUCT, between), abs=0.01)


def test_dalys_interval_is_near_the_best() -> None:
    between, cost = 5 * HOUR, 60.0
    tau = daly(cost, between)
    assert tau == pytest.approx(young(cost, between), rel=0.1)
    best = replace(CONDUCT, stop=cost, interval=tau)
    for factor in (0.25, 4.0):
        other = replace(best, interval=factor * tau)
        assert expected_share(best, between) > expected_share(other, between)
        assert effective([every(between)], best, 90.0, 3) > effective(
            [every(between)], other, 90.0, 3
        )


def test_an_asynchronous_checkpoint_loses_more_work_and_stops_less() -> None:
    blocking = replace(CONDUCT, stop=120.0)
    behind = replace(CONDUCT, stop=5.0, persist=120.0)
    faults = [every(4 * HOUR)]
    stopped, written = (ledger(*faults, conduct=c).seconds for c in (blocking, behind))
    assert written["checkpoints"] < stopped["checkpoints"]
    assert written["lost work"] > stopped["lost work"]
    assert written["productive"] > stopped["productive"]


@pytest.mark.parametrize("interval", [600.0, 5.0])
def test_each_fault_loses_at_least_the_seconds_that_a_checkpoint_is_being_written(
    interval: float,
) -> None:
    """Also where several checkpoints are being written at once."""
    behind = replace(CONDUCT, interval=interval, stop=0.0, persist=30.0)
    struck = ledger(every(HOUR), conduct=behind, days=2)
    lost = struck.seconds["lost work"] / sum(struck.faults.values())
    assert 20.0 < lost < 30.0 + interval


def test_weibull_and_exponential_strike_equally_often_on_average() -> None:
    """Renewal theorem: one fault per component and mean time, once the young have aged."""
    counts = [
        sum(ledger(every(HOUR, shape=shape, components=10), days=60, seed=s).faults["fault"]
            for s in range(3)) for shape in (1.0, 0.9, 1.5)
    ]  # fmt: skip
    assert counts == pytest.approx([3 * 60 * 24] * 3, rel=0.05)
    assert gamma(1 + 1 / 0.9) > 1  # the scale that makes their means equal


def test_without_spares_the_job_waits_and_elastic_ones_shrink() -> None:
    broken = every(12 * HOUR, breaks=True)
    base = replace(CONDUCT, repair=6 * HOUR, replicas=16)
    waits, shrinks, spared = (
        ledger(broken, conduct=conduct).seconds
        for conduct in (base, replace(base, elastic=True), replace(base, spares=20))
    )
    assert waits["waiting"] > 5 * shrinks["waiting"]
    assert spared["waiting"] == 0.0
    assert waits["productive"] < shrinks["productive"] < spared["productive"]


def test_who_waits_for_each_repair_does_so_for_the_share_of_a_renewal_process() -> None:
    """Of M seconds in the mean until a break, and R until it is repaired: R / (M + R)."""
    own = replace(CONDUCT, interval=60.0, stop=0.0, detection=0.0, restart=0.0, repair=14 * DAY)
    seconds = ledger(every(40 * DAY, breaks=True), conduct=own, days=100_000).seconds
    assert seconds["waiting"] / sum(seconds.values()) == pytest.approx(14 / 54, rel=0.05)


def test_a_slow_node_costs_more_the_later_it_is_found() -> None:
    slow = every(2 * DAY, slows=1.3)
    costs = [
        ledger(slow, conduct=replace(CONDUCT, slow_detection=late)).seconds["slowdown"]
        for late in (HOUR, 6 * HOUR, DAY)
    ]
    assert costs == sorted(costs)
    assert costs[0] > 0


def test_nobody_stops_for_a_state_that_lasts() -> None:
    """A link that is down for 2 min every 20 min on average, by which steps take 1.5 times as long:
    a third of a step is lost for 2 / 22 of the time."""
    seconds = ledger(every(1200.0, slows=1.5, lasts=120.0)).seconds
    assert seconds["restart"] == seconds["lost work"] == seconds["detection"] == 0.0
    share = seconds["slowdown"] / (seconds["slowdown"] + seconds["productive"])
    assert share == pytest.approx((1.0 - np.exp(-0.1)) / 3.0, rel=0.1)  # states may overlap


LINK = """
gpus = 32
window = "30 d"
[recovery]
interval = "1 h"
repair = "6 h"
[[cause]]
name = "node dies"
count = 3
component = "node"
[[cause]]
name = "NIC slow"
count = 60
component = "node"
[cause.state]
straggler = [{link = "node0.nic0", factor = 8.0}]
"""


def test_a_state_is_played_and_lasts_until_its_repair(tmp_path: Path) -> None:
    table = tmp_path / "links.toml"
    table.write_text(LINK)
    slow = sim.run("megatron-1.7b", {"straggler": [{"link": "node0.nic0", "factor": 8.0}]})
    factor = slow.step_time / sim.run("megatron-1.7b").step_time
    one = sim.goodput("megatron-1.7b", failures=str(table))
    line = f"NIC slow: steps take {factor:.3f} times as long for 6 h"
    assert line in one.assumed
    down = one.seconds["slowdown"] / (one.seconds["slowdown"] + one.seconds["productive"])
    assert 0.0 < down < 1.0 - 1.0 / factor
    assert one.interruptions == one.faults.get("node dies", 0)
    flapping = sim.goodput("megatron-1.7b", failures=str(table), settings=["recovery.repair=1 min"])
    assert flapping.seconds["slowdown"] < one.seconds["slowdown"] / 10


@pytest.mark.parametrize(
    ("table", "fault"),
    [
        (LINK + "[[cause]]\nname = 'x'\ncount = 1\nlasts = '1 h'\n", "lasts needs a state"),
        (LINK.replace("[cause.state]", "breaks = true\n[cause.state]"), "leave out breaks"),
        (LINK.replace("node0.nic0", "node99.nic0"), "node99.nic0"),
    ],
)
def test_a_state_that_cannot_be_is_refused_before_a_step_is_played(
    tmp_path: Path, table: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "pace", None)
    path = tmp_path / "links.toml"
    path.write_text(table)
    for command in (["goodput"], ["cost", "--tokens", "1T"]):
        words = [*command, "megatron-1.7b", "--failures", str(path)]
        found = CliRunner().invoke(main, words)
        assert (found.exit_code, found.stderr.count("\n")) == (2, 1), found.output
        assert fault in found.stderr


def test_the_same_seed_gives_the_same_days() -> None:
    faults = failures.load("llama3").faults(16384)
    conduct = replace(CONDUCT, spares=100)
    first, again = (run(faults, conduct, 10.0, 7) for _ in range(2))
    assert first == again
    assert run(faults, conduct, 10.0, 8) != first


def test_llama_3_reaches_the_effective_training_time_that_was_reported() -> None:
    """More than 90 % over 54 days (arXiv 2407.21783, section 3.3.4), from its table of causes."""
    table = failures.load("llama3")
    assert sum(cause.count for cause in table.cause if not cause.planned) == 419
    conduct = conduct_of(table.recovery, 405e9 * 14, 54 * DAY / 466, 16)
    shares = [effective(table.faults(16384), conduct, 54.0, seed) for seed in range(5)]
    assert 0.9 < min(shares) <= max(shares) < 0.96
    slow = replace(conduct, restart=1800.0)
    assert effective(table.faults(16384), slow, 54.0, 0) < 0.9


def test_rates_grow_with_the_devices_but_not_those_of_the_job() -> None:
    table = failures.load("llama3")
    small, large = ({f.name: f.rate for f in table.faults(n)} for n in (1024, 16384))
    assert large["Faulty GPU"] == pytest.approx(16 * small["Faulty GPU"])
    assert large["Software bug"] == small["Software bug"]


def test_interruptions_that_are_set_keep_the_shares_of_their_causes() -> None:
    seen, twice = failures.load("llama3"), failures.load("llama3", [("interruptions", 0.4)])
    assert twice.per_device_year == 0.4
    before, after = (own.faults(16384) for own in (seen, twice))
    for old, new in zip(before, after, strict=True):
        grown = 1.0 if old.planned else 0.4 / seen.per_device_year
        assert new.rate == pytest.approx(grown * old.rate)
    none = failures.load("llama3", [("interruptions", 0.0)])
    assert none.between(16384) > seen.between(16384)


TABLE = """component,category,count,window_days,gpus
Faulty GPU,GPU,148,54,16384
Network Switch/Cable,Network,35,54,16384
Software Bug,Dependency,54,54,16384
unexpected,total,419,54,16384
"""


def test_a_table_of_interruptions_is_read_without_its_totals(tmp_path: Path) -> None:
    path = tmp_path / "interruptions.csv"
    path.write_text(TABLE)
    table = failures.load(str(path))
    assert [(c.name, c.component, c.breaks) for c in table.cause] == [
        ("Faulty GPU", "gpu", True),
        ("Network Switch/Cable", "node", False),
        ("Software Bug", "job", False),
    ]


@pytest.mark.parametrize("text", ["", "component,count\na,1\n", TABLE.replace("148", "many")])
def test_a_table_that_says_nothing_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "interruptions.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=r"interruptions\.csv"):
        failures.load(str(path))


def test_the_command_prints_the_share_and_one_json_object() -> None:
    words = ["goodput", "gpt3-175b-megatron", "--days", "5", "--set", "recovery.restart=10 min"]
    plain = CliRunner().invoke(main, words)
    assert plain.exit_code == 0, plain.output
    assert "effective training time" in plain.stdout
    answer = json.loads(CliRunner().invoke(main, [*words, "--json"]).stdout)
    assert 0 < answer["effective_training_time"] <= 1
    assert sum(answer["seconds"].values()) == pytest.approx(5 * DAY)
    assert answer["conduct"]["restart"] >= 600
    likely = answer["tokens_likely"]
    assert likely["low"] < likely["expected"] < likely["high"]
    assert f"expected {large(likely['expected'])} tokens" in plain.stdout


def test_slower_steps_train_on_fewer_tokens_in_the_same_days() -> None:
    table = failures.load("llama3")
    pace = questions.pace(from_scenario(load("gpt3-175b-megatron")))
    assert pace.sure is not None
    answer, bounds = of_pace(pace, table, days=2), pace.sure.of(pace.seconds)
    for bound, step in (("low", "high"), ("high", "low")):
        found = of_pace(replace(pace, seconds=bounds[step]), table, days=2)
        assert found.tokens == pytest.approx(answer.tokens_likely[bound])


def test_a_scenarios_own_checkpoints_are_taken_unless_set_otherwise() -> None:
    stated = "--set=checkpoints={steps = 100, storage = '1 GB/s'}"

    def conduct(*words: str) -> tuple[float, float]:
        command = ["goodput", "gpt2-one-gpu", "--days=1", "--json", stated, *words]
        answer = json.loads(CliRunner().invoke(main, command).stdout)
        own = answer["conduct"]
        return own["interval"], own["stop"] / answer["checkpoint_bytes"]

    step = sim.run("gpt2-one-gpu").step_time
    assert conduct() == pytest.approx((100 * step, 1e-9))
    assert conduct("--set=recovery.interval=5 min") == pytest.approx((300.0, 1e-9))
    assert conduct("--set=recovery.storage=2 GB/s") == pytest.approx((100 * step, 0.5e-9))


@pytest.mark.parametrize("words", [
    ["--failures=nothing"], ["--failures=none.csv"], ["--days=0"], ["--set=recovery.restart=5"],
    ["--set=recovery.naps=5"], ["--set=recovery.interval=0 s"],
])  # fmt: skip
def test_a_mistake_is_one_line(words: list[str]) -> None:
    result = CliRunner().invoke(main, ["goodput", "gpt2-one-gpu", *words])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1


def test_what_does_not_grow_with_the_job_is_said() -> None:
    """A bug stops one GPU's job as often as a large one's; the account must not say otherwise."""
    table = failures.load("llama3")
    told = table.assumed(8, None, ())[0]
    assert "in proportion to 8 GPUs; failures of a whole job (Software bug" in told
    assert "whole job" not in table.assumed(table.gpus, None, ())[0]


def test_the_store_that_takes_the_checkpoints_is_among_the_assumptions() -> None:
    found = sim.goodput("llama3-70b-lora")
    said = "checkpoints go to a store for each 32 nodes: 20.0 GB/s written, 40.0 GB/s read"
    (told,) = (line for line in found.assumed if said in line)
    assert "[storage] of dgx-h100-ndr" in told
    assert found.conduct.stop == pytest.approx(found.checkpoint_bytes / 20e9, rel=0.01)
