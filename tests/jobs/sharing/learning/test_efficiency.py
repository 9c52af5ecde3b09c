"""Statistical efficiency: McCandlish's laws, an unbiased noise scale, and where to stop."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

import sim
from sim.config.errors import InputError
from sim.interface.cli.main import main
from sim.jobs.sharing.learning.efficiency import Efficiency, efficiency_of, noise_scale
from sim.jobs.sharing.learning.numpy_tasks import Quadratic
from sim.jobs.sharing.learning.optimizers import Optimizer
from sim.jobs.sharing.scenario import SharingScenario
from sim.jobs.sharing.worker_counts import worker_counts

CURVE = Efficiency(critical_batch=512.0, least_samples=1e6)


@pytest.mark.parametrize("batch", [1.0, 32.0, 512.0, 1e6])
def test_steps_and_samples_lie_on_the_hyperbola(batch):
    """McCandlish et al. 2018: (S / S_min - 1) (E / E_min - 1) = 1, and E = B S."""
    steps, samples = CURVE.steps(batch), CURVE.samples(batch)
    excess = (steps / CURVE.least_steps - 1.0) * (samples / CURVE.least_samples - 1.0)
    assert excess == pytest.approx(1.0)
    assert samples == pytest.approx(batch * steps)


def test_the_critical_batch_needs_twice_the_least_of_both():
    assert CURVE.steps(512.0) == 2.0 * CURVE.least_steps
    assert CURVE.samples(512.0) == 2.0 * CURVE.least_samples


def test_a_curve_goes_through_the_run_that_it_is_made_of():
    assert Efficiency.through(300.0, 64.0, 5e4).samples(64.0) == pytest.approx(5e4)


@pytest.mark.parametrize("batch", [1, 8])
def test_the_noise_scale_is_that_of_the_quadratic(batch):
    """tr(Sigma) = size noise^2 of one sample, G = a (w - 1), whatever batches measure it."""
    task = Quadratic(size=6, condition=5.0, noise=0.7, batch=batch)
    place = np.full(6, 0.3)
    scale = noise_scale(task, [place], batch, workers=64, draws=200)
    signal = float(np.sum((np.geomspace(0.2, 1.0, 6) * 0.7) ** 2))
    assert scale.noise == pytest.approx(6 * 0.7**2, rel=0.03)
    assert scale.signal == pytest.approx(signal, rel=0.05)
    assert scale.batch == scale.noise / scale.signal


def test_a_noisier_task_has_a_larger_critical_batch():
    rule = Optimizer(rate=0.05)
    found = [
        efficiency_of(Quadratic(noise=noise, condition=2.0), rule, 0.5, batch=1, workers=8)
        for noise in (0.5, 1.0)
    ]
    assert found[1].critical_batch == pytest.approx(4.0 * found[0].critical_batch, rel=0.25)


def test_targets_that_are_never_reached_and_tasks_without_noise_are_refused():
    quiet = Quadratic(noise=0.0)
    with pytest.raises(InputError, match="loss is not"):
        efficiency_of(quiet, Optimizer(rate=1e-6), 0.1, batch=1, workers=2, most=20)
    with pytest.raises(InputError, match="no critical batch"):
        efficiency_of(quiet, Optimizer(rate=0.5), 0.1, batch=1, workers=2)
    with pytest.raises(InputError, match="is no number of samples"):
        Efficiency(critical_batch=0.0, least_samples=1.0)


def scenario(**sharing):
    return sim.load("all-reduce-ddp", {f"sharing.{key}": value for key, value in sharing.items()})


def test_more_workers_stop_helping_near_the_critical_batch():
    """Without a network in the way gains are halved at B_crit; a larger B_crit moves the stop."""
    job, counts = scenario(steps=5), (1, 2, 4, 8, 16)
    batch = worker_counts(job, [1], CURVE).rows[0].batch
    stops = []
    for at in (2, 8):
        curve = Efficiency(critical_batch=at * batch, least_samples=1e7)
        answer = worker_counts(job, counts, curve)
        assert answer.rows[-1].gain < answer.rows[1].gain
        assert answer.rows[-1].gpu_hours > answer.rows[0].gpu_hours
        assert f"B_crit = {at * batch:,.0f} samples" in answer.sentence
        stops.append(answer.stop.workers)
    assert 1 <= stops[0] <= 2 < stops[1] <= 8


def test_the_command_prints_a_row_a_number_and_where_to_stop():
    asked = ["workers", "all-reduce-ddp", "--counts", "1,2", "--set", "sharing.steps=3"]
    curve = ["--critical-batch", "64", "--least-samples", "1e6"]
    ran = CliRunner().invoke(main, [*asked, *curve, "--json"])
    assert ran.exit_code == 0, ran.output
    assert [row["workers"] for row in json.loads(ran.output)["rows"]] == [1, 2]
    page = CliRunner().invoke(main, [*asked, *curve]).output
    assert page.splitlines()[-1].startswith("B_crit = 64 samples")


@pytest.mark.long
def test_a_large_model_stops_at_the_critical_batch_of_kaplans_law():
    """arXiv 2001.08361: L = (N_c / N)^0.077 + (S_c / S_min)^0.76, B_crit = 2e8 / L^(1 / 0.21)."""
    loss, parameters, tokens = 3.0, 1.475e9, 1024
    least_steps = 2.1e3 / (loss - (6.5e13 / parameters) ** 0.077) ** (1 / 0.76)
    critical = 2e8 / loss ** (1 / 0.21) / tokens
    job = sim.load("gpt2-1.5b-workers", {"sharing.steps": 3})
    assert isinstance(job, SharingScenario)
    assert job.sharing.efficiency.critical_batch == pytest.approx(critical, rel=0.01)
    assert job.sharing.efficiency.least_steps == pytest.approx(least_steps, rel=0.01)
    answer = worker_counts(job, (8, 16, 32, 64))
    assert answer.stop.workers == 32
    assert answer.stop.batch == pytest.approx(critical, rel=0.02)
    small, *_, large = answer.rows
    assert large.dollars > 1.4 * answer.stop.dollars > 1.4 * 1.5 * small.dollars
    assert large.seconds > 0.6 * answer.stop.seconds


def test_a_run_says_what_its_target_takes():
    curve = {"critical_batch": 100.0, "least_samples": 1e6}
    outcome = sim.run(sim.load("ps-bsp", {"sharing.efficiency": curve, "sharing.steps": 3}))
    batch = 8 * 32
    assert outcome.to_target["batch"] == batch
    assert outcome.to_target["samples"] == pytest.approx(1e6 * (1 + batch / 100))
    took = outcome.to_target["samples"] / outcome.samples_per_second
    assert outcome.to_target["seconds"] == pytest.approx(took)
    assert "to the target" in str(outcome)
    assert "3,560,000 samples at 256 an update" in str(outcome)


def test_time_and_cost_are_drawn(tmp_path):
    file = tmp_path / "workers.png"
    asked = ["workers", "gpt2-1.5b-workers", "--counts", "1,2", "--set", "sharing.steps=2"]
    ran = CliRunner().invoke(main, [*asked, "--picture", str(file)])
    assert ran.exit_code == 0, ran.output
    assert file.read_bytes().startswith(b"\x89PNG")
    job = sim.load("gpt2-1.5b-workers", {"sharing.steps": 2})
    by_count, by_time = worker_counts(job, [1, 2]).plot().axes
    assert by_time.get_ylabel() == "cost (dollars)"
    full, simulated = (line.get_ydata() for line in by_count.lines)
    assert full[1] == pytest.approx(full[0] / 2)
    assert full[0] == simulated[0]
    assert full[1] < simulated[1] < simulated[0]


def test_a_curve_that_is_none_is_refused_in_one_line():
    for setting, complaint in (
        ("sharing.efficiency={critical_batch=-1.0,least_samples=1e6}", "must be positive"),
        ("sharing.efficiency={critical_batch=10.0}", "least_samples"),
    ):
        ran = CliRunner().invoke(main, ["run", "ps-bsp", "--set", setting])
        assert ran.exit_code == 2, ran.output
        assert complaint in ran.output
        assert ran.output.count("\n") == 1


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        (["--counts", "4,2"], "is no rising list of worker numbers"),
        (["--counts", "a"], "are no numbers"),
        (["--critical-batch", "64"], "go together"),
        ([], "no task with a target"),
    ],
)
def test_mistakes_are_one_line(more, complaint):
    ran = CliRunner().invoke(main, ["workers", "all-reduce-ddp", *more])
    assert ran.exit_code == 2
    assert complaint in ran.output
    assert ran.output.count("\n") == 1


@pytest.mark.long
def test_workers_and_compare_have_the_same_time_to_a_target():
    """Where nobody gives a curve both train the task, staleness and drift included."""
    target = {"sharing.learning.target": 0.5, "sharing.steps": 200}
    counted = sim.workers("ps-async", (1, 4), settings=target)
    jobs = ("ps-async: sharing.workers=1", ": sharing.workers=4")
    ways = sim.compare(*jobs, settings=target, target=0.5)
    found = [row.seconds for row in counted.rows]
    assert counted.trained
    assert found == [row["time_to_target"] for row in ways.records]
    assert "those of the task's runs" in str(counted)
    by_curve = sim.workers("ps-async", (1,), critical_batch=64.0, least_samples=1e6)
    assert "ignores staleness and drift" in str(by_curve)


def test_more_steps_than_the_scenario_has_are_trained_on_the_way_to_a_target():
    few = {"sharing.learning.target": 0.5, "sharing.steps": 20}
    row = sim.workers("ps-async", (1,), settings=few).rows[0]
    assert row.samples > 20 * 32


@pytest.mark.long
def test_a_number_of_workers_that_never_reaches_the_target_says_so():
    wild = {"sharing.learning.target": 0.5, "sharing.steps": 50, "sharing.workers": 1,
            "sharing.learning.task": "quadratic", "sharing.learning.rate": 0.3}  # fmt: skip
    late = sim.workers("ps-async", (1, 64), settings=wild)
    first, last = late.rows
    assert first.seconds < float("inf") == last.seconds
    assert late.stop is first
    assert "never" in str(late)
    assert late.to_dict()["rows"][1]["seconds"] is None
