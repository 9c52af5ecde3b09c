"""Costs: the arithmetic of days and dollars, and what published trainings cost."""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

import sim
from sim import run
from sim.analysis.reliability.cost import cost_of
from sim.config.errors import InputError
from sim.hardware.cluster import topology
from sim.interface.cli.main import main
from sim.kind import load
from sim.model import counts
from sim.scenario.setup import from_scenario

POD = topology.load("tpu-v2-pod", {"gpus": 128})


def test_a_day_of_128_cores_costs_their_hours_times_the_price() -> None:
    cost = cost_of(POD, step_time=2.0, tokens_per_step=1000.0, tokens=43.2e6)
    assert (cost.days, cost.gpu_hours) == (1.0, 128 * 24.0)
    assert cost.dollars == pytest.approx(128 * 24 * 0.5625)
    assert cost.tokens_per_dollar == pytest.approx(43.2e6 / (128 * 24 * 0.5625))
    assert cost.energy == pytest.approx(86400 * 128 * 200.0 * 1.1)
    assert cost.electricity == pytest.approx(cost.energy / 3.6e6 * 0.07)


def test_a_step_that_waits_draws_less() -> None:
    """An H100 with nothing to do draws its static power, under products all that the limit leaves;
    no board draws more than its limit."""
    h100 = topology.load("dgx-h100-ndr").device
    idle, half, full = (
        h100.drawn(multiplying=busy, streaming=0.0, seconds=2.0) for busy in (0.0, 1.0, 2.0)
    )
    assert (idle, full) == (pytest.approx(202.5), pytest.approx(700.0))
    assert half == pytest.approx((idle + full) / 2)
    assert h100.drawn(multiplying=2.0, streaming=1.0, seconds=2.0) == 700.0


def test_more_waiting_takes_less_power_and_more_energy() -> None:
    fast, slow = (sim.cost("megatron-1.7b", settings={"network.bandwidth": rate}, tokens=1e9)
                  for rate in ("25 GB/s", "2 GB/s"))  # fmt: skip
    assert slow.watts < fast.watts
    assert slow.energy > fast.energy


def test_half_the_goodput_doubles_time_and_money() -> None:
    whole, half = (cost_of(POD, 1.0, 1.0, 1e6, goodput=share) for share in (1.0, 0.5))
    assert half.days == 2 * whole.days
    assert half.dollars == pytest.approx(2 * (whole.dollars or 0.0))


def test_without_a_price_there_are_hours_and_energy_only() -> None:
    cost = cost_of(replace(POD, price=None), 1.0, 1.0, 1e6)
    assert (cost.dollars, cost.electricity, cost.tokens_per_dollar) == (None, None, None)
    assert cost.energy > 0


def test_bert_large_takes_about_four_days_and_7000_dollars_on_64_tpus() -> None:
    """Devlin et al. 2019, appendix A.2: 4 days; at 4.50 USD an hour for four chips 6,912 USD.

    The simulated run leaves out evaluation and input.
    """
    cost = sim.cost(load("bert-large-tpu-v2"))
    assert cost.days == pytest.approx(4.0, rel=0.1)
    assert cost.dollars == pytest.approx(7_000, rel=0.1)


def test_training_stops_for_checkpoints() -> None:
    """12 bytes a parameter (fp32 weights and Adam's moments) at 200 MiB/s, every 1,000 steps."""
    job = load("bert-large-tpu-v2")
    stops, never = sim.cost(job), sim.cost(replace(job, checkpoints=None))
    each = 12 * counts.parameters(from_scenario(job).job.model) / (200 * 2**20)
    assert stops.checkpoints == pytest.approx(131e9 / 131072 / 1000 * each)
    assert stops.seconds - never.seconds == pytest.approx(stops.checkpoints)
    assert "of them for checkpoints" in str(stops)
    assert "for checkpoints" not in str(never)


def test_days_and_dollars_are_expected_as_much_longer_as_a_measured_step_is() -> None:
    job = load("bert-large-tpu-v2")
    step, cost = run(job), sim.cost(replace(job, checkpoints=None))
    answer = cost.to_dict()["likely"]
    for bound in ("low", "expected", "high"):
        longer = getattr(step, f"step_time_{bound}") / step.step_time
        for figure in ("days", "dollars", "energy"):
            assert answer[figure][bound] == pytest.approx(longer * cost.to_dict()[figure])
    assert f"tokens in {answer['days']['expected']:.1f} days" in str(cost)


def test_checkpoints_take_what_they_take_however_long_steps_are() -> None:
    job = load("bert-large-tpu-v2")
    stops, never = sim.cost(job), sim.cost(replace(job, checkpoints=None))
    assert stops.likely is not None
    assert never.likely is not None
    assert stops.seconds * stops.likely.high - never.seconds * never.likely.high == pytest.approx(
        stops.checkpoints
    )


def test_gpt3_costs_5_to_12_million_dollars() -> None:
    cost = sim.cost(load("gpt3-175b-cost"))
    assert 5e6 < (cost.dollars or 0.0) < 12e6


def test_more_expensive_hours_cost_more_and_change_nothing_else() -> None:
    words = ["cost", "gpt2-one-gpu", "--tokens", "1e9", "--json"]
    cheap, dear = (
        json.loads(CliRunner().invoke(main, [*words, "--price", price]).stdout)
        for price in ("1 USD/h", "3 USD/h")
    )
    assert dear["dollars"] == pytest.approx(3 * cheap["dollars"])
    assert dear["days"] == cheap["days"]


def test_a_scenario_without_a_budget_asks_for_one() -> None:
    with pytest.raises(InputError, match="no token budget"):
        sim.cost(load("gpt2-one-gpu"))


@pytest.mark.parametrize("price", ["3", "3 GB", "cheap"])
def test_a_price_without_its_unit_is_one_line(price: str) -> None:
    result = CliRunner().invoke(main, ["cost", "gpt2-one-gpu", "--tokens", "1e9", "--price", price])
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
