"""`sim measure`: tiny jobs measured and compared; what cannot be measured is one line."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from sim import run
from sim.analysis.calibration.timing import process_group
from sim.analysis.calibration.training import real_run
from sim.analysis.calibration.training.comparison import (
    ComparedQuantity,
    compare,
    phases,
    write_steps,
)
from sim.analysis.calibration.training.job_measurement import JobMeasurement, MeasuredRound
from sim.analysis.calibration.training.measure import measure
from sim.analysis.calibration.training.phase_timer import bytes_of
from sim.analysis.calibration.training.real_run import Interleaving, measure_text
from sim.analysis.calibration.training.script import script_of
from sim.config.errors import InputError
from sim.interface.cli.main import main
from sim.kind import load
from sim.parallel.job import Job
from sim.scenario.scenario import Scenario
from tests.analysis.calibration.tiny import GPT, job, trained
from tests.lazy import torch

TINY = {"model.layers": 2, "model.hidden": 32, "model.heads": 4, "model.ffn": 64, "model.seq": 16}
ONE_ROUND = Interleaving(rounds=1, steps=2)


def tiny(**more: object) -> Scenario:
    return load("gpt-small-cpu", TINY | more)


def measurement(*seconds: float, references: tuple[float, ...] = (1.0,)) -> JobMeasurement:
    steps = tuple(
        {"forward": 0.3 * s, "backward": 0.6 * s, "optimizer": 0.1 * s, "step": s} for s in seconds
    )
    rounds = tuple(MeasuredRound(reference=reference, steps=steps) for reference in references)
    return JobMeasurement(rounds=rounds, parameters=7, peak=2e6, loss=0.0)


def refuse(*arguments: str) -> str:
    result = CliRunner().invoke(main, ["measure", *arguments])
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    [line] = result.stderr.splitlines()
    assert line.startswith("error: ")
    return line


def test_a_tiny_job_is_measured_beside_its_prediction() -> None:
    comparison = measure(tiny(), interleaving=ONE_ROUND, calibrate=False)
    assert comparison is not None
    rows = {row.name: row for row in comparison.quantities}
    parts = [rows[name].measured for name in ("forward", "backward", "optimizer")]
    assert all(part > 0 for part in parts)
    assert rows["parameters"].error == 0
    assert rows["peak memory"].error == pytest.approx(0, abs=0.1)
    assert len(comparison.measurement.steps) == 2


@pytest.mark.long
def test_ranks_see_the_loss_of_one_process_with_the_same_batches() -> None:
    """Batches are seeded by their number, on any rank."""
    alone, shared = job(GPT, global_batch=4), job(GPT, dp=2)
    of_one = measure_text(0, text(alone), "cpu", ONE_ROUND, silent)
    of_two = process_group.run(measure_text, 2, text(shared), "cpu", ONE_ROUND, silent, threads=1)
    assert of_two.loss == pytest.approx(of_one.loss, rel=1e-5)
    assert all("communication" in step for step in of_two.steps)
    assert [size for size, _ in of_two.rounds[0].transfers] == list(real_run.TRANSFERS)


def text(trained: Job) -> str:
    return script_of(trained, "tiny", "cpu", steps=100)


def silent(message: str) -> None: ...


@pytest.mark.long
def test_fully_sharded_ranks_hold_half_of_the_state() -> None:
    """Masters, moments and weights; gathered layers and activations come on top."""
    sharded = process_group.run(held, 2, text(job(GPT, dp=2, zero=3)), threads=1)
    assert sharded < 0.6 * held(0, text(job(GPT)))


def held(rank: int, script: str) -> float:
    """Bytes of weights and of what the optimizer keeps behind a step."""
    ended = trained(script.replace("STEPS = 100", "STEPS = 1"))
    states = (state for own in ended["optimizer"].state.values() for state in own.values())
    return bytes_of([*ended["parameters"], *(s for s in states if isinstance(s, torch.Tensor))])


def test_the_script_is_printed_and_runs_by_itself(tmp_path: Path) -> None:
    settings = [f"--set={key}={value}" for key, value in TINY.items()]
    asked = ["measure", "gpt-small-cpu", *settings, "--steps=1", "--print-script"]
    printed = CliRunner().invoke(main, asked).stdout
    (tmp_path / "train.py").write_text(printed)
    command = [sys.executable, str(tmp_path / "train.py")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.endswith(" ms a step\n")


def test_a_script_that_ends_too_early_is_refused() -> None:
    short = text(job(GPT)).replace("STEPS = 100", "STEPS = 1")
    with pytest.raises(InputError, match="ended after 0 of 2 steps, not counting the first"):
        measure_text(0, short, "cpu", ONE_ROUND, silent)


def test_errors_are_predicted_over_measured() -> None:
    assert ComparedQuantity(name="a", measured=2.0, predicted=3.0).error == 0.5
    assert ComparedQuantity(name="a", measured=0.0, predicted=3.0).error is None


def test_predicted_phases_add_up_to_the_step() -> None:
    result = run(tiny())
    assert sum(phases(result).values()) == pytest.approx(result.step_time, rel=1e-6)


def test_a_comparison_has_median_spread_and_drift(tmp_path: Path) -> None:
    measured = measurement(1.0, 2.0, 3.0, references=(1.0, 1.2, 0.9))
    result = run(tiny())
    comparison = compare("job", measured, result, memory=3e6, parameters=7, source="rates")
    data = json.loads(json.dumps(comparison.to_dict()))
    assert data["quantities"]["step time"]["measured"] == 2.0
    assert data["quantities"]["peak memory"]["error"] == pytest.approx(0.5)
    assert data["drift"] == pytest.approx([-0.1, 0.2])
    assert data["spread"] == pytest.approx(1.0)
    assert "drifted by -10.0% to +20.0%" in str(comparison)
    write_steps(comparison, tmp_path / "rows.csv")
    lines = list(csv.DictReader((tmp_path / "rows.csv").open()))
    assert len(lines) == 9
    assert lines[3]["reference"] == "1.2"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gpt-smal-cpu"], "did you mean 'gpt-small-cpu'?"),
        (["gpt-small-cpu", "--device=cuda"], "no CUDA device"),
        (["gpt-small-cpu", "--set=plan.tp=2", "--set=gpus=2"], "cannot run tp = 2"),
        (["gpt-small-cpu", "--set=plan.zero=1", "--set=gpus=2"], "cannot run zero = 1"),
        (
            ["gpt-small-cpu", "--set=plan.optimizer=lamb"],
            "'lamb' with moments = 'fp32'; take adam",
        ),
        (["gpt-small-cpu", "--set=plan.precision=fp8"], "CPU has no fp8; it has fp32, bf16"),
        (["gpt-small-cpu", "--set=model.positions=alibi"], "positions = 'alibi'"),
        (
            ["gpt-small-cpu", "--set=model.positions=relative", "--set=model.attention=standard"],
            "positions = 'relative'",
        ),
        (["gpt-small-cpu", "--set=model.norm_weights=0"], "norm_weights = 0"),
        (["gpt-small-cpu", "--set=model=resnet50"], "convolutional"),
        (["gpt-small-cpu", "--set=model.layers=10000"], "GiB, but this host has"),
        (
            ["gpt-small-cpu", "--set=stack=megatron-core"],
            "has kernels that plain torch does not have",
        ),
        (["gpt-small-cpu", "--profile=nowhere"], "--profile: no file named"),
        (["gpt-small-cpu", "--rows=nowhere/a.csv"], "no folder 'nowhere'"),
    ],
)
def test_what_cannot_be_measured_is_one_line(arguments: list[str], message: str) -> None:
    assert message in refuse(*arguments)
