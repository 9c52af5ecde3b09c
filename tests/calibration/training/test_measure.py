"""`sim measure`: tiny jobs measured and compared; what cannot be measured is one line."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from sim.calibration.training.comparison import Row, compare, phases, write_rows
from sim.calibration.training.observation import Observation, Round
from sim.cli.main import main
from sim.scenario import scenario as scenarios
from sim.simulate import simulate
from tests.calibration.tiny import GPT, job

pytest.importorskip("torch")

from sim.calibration.timing import ranks
from sim.calibration.training import measure as study
from sim.calibration.training import rounds


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny tensors on many threads mostly wait for one another."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


TINY = {"model.layers": 2, "model.hidden": 32, "model.heads": 4, "model.ffn": 64, "model.seq": 16}
ONE = rounds.Course(rounds=1, steps=2)


def tiny(**more: object) -> scenarios.Scenario:
    return scenarios.load("gpt-small-cpu", TINY | more)


def seen(*steps: float, references: tuple[float, ...] = (1.0,)) -> Observation:
    laps = tuple(
        {"forward": 0.3 * s, "backward": 0.6 * s, "optimizer": 0.1 * s, "step": s} for s in steps
    )
    turns = tuple(Round(reference=one, steps=laps) for one in references)
    return Observation(rounds=turns, parameters=7, peak=2e6, loss=0.0)


def refuse(*arguments: str) -> str:
    result = CliRunner().invoke(main, ["measure", *arguments])
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    [line] = result.stderr.splitlines()
    assert line.startswith("error: ")
    return line


def test_a_tiny_job_is_measured_beside_its_prediction() -> None:
    found = study.measure(tiny(), course=ONE, calibrate=False)
    assert found is not None
    rows = {row.name: row for row in found.rows}
    parts = [rows[name].measured for name in ("forward", "backward", "optimizer")]
    assert all(part > 0 for part in parts)
    assert rows["parameters"].error == 0
    assert rows["peak memory"].error == pytest.approx(0, abs=0.1)
    assert len(found.observation.steps) == 2


def test_ranks_see_the_loss_of_one_process_with_the_same_batches() -> None:
    """Batches are seeded by their number, whichever rank has them."""
    alone, shared = job(GPT, global_batch=4), job(GPT, dp=2)
    one = rounds.observe(0, alone, "cpu", ONE, print)
    two = ranks.run(rounds.observe, 2, shared, "cpu", ONE, _silent, threads=1)
    assert two.loss == pytest.approx(one.loss, rel=1e-5)
    assert all("communication" in laps for laps in two.steps)
    assert [size for size, _ in two.rounds[0].transfers] == list(rounds.TRANSFERS)


def _silent(said: str) -> None: ...


def test_fully_sharded_ranks_hold_half_of_the_state() -> None:
    """Masters, moments and weights; gathered layers and activations come on top."""
    sharded = ranks.run(_held, 2, job(GPT, dp=2, zero=3), threads=1)
    assert sharded < 0.6 * _held(0, job(GPT))


def _held(rank: int, one: object) -> float:
    from sim.calibration.training.trainer import Trainer

    trainer = Trainer(one, rank=rank)  # type: ignore[arg-type]
    trainer.step()
    return trainer.held


def test_errors_are_predicted_over_measured() -> None:
    assert Row(name="a", measured=2.0, predicted=3.0).error == 0.5
    assert Row(name="a", measured=0.0, predicted=3.0).error is None


def test_predicted_phases_add_up_to_the_step() -> None:
    result = simulate(tiny())
    assert sum(phases(result).values()) == pytest.approx(result.step_time, rel=1e-6)


def test_a_comparison_says_median_spread_and_drift(tmp_path: Path) -> None:
    observed = seen(1.0, 2.0, 3.0, references=(1.0, 1.2, 0.9))
    found = compare("job", observed, simulate(tiny()), memory=3e6, parameters=7, source="rates")
    data = json.loads(json.dumps(found.to_dict()))
    assert data["step_time"]["measured"] == 2.0
    assert data["peak_memory"]["error"] == pytest.approx(0.5)
    assert data["drift"] == pytest.approx([-0.1, 0.2])
    assert "drifted by -10.0% to +20.0%" in str(found)
    write_rows(found, tmp_path / "rows.csv")
    lines = list(csv.DictReader((tmp_path / "rows.csv").open()))
    assert len(lines) == 9
    assert lines[3]["reference"] == "1.2"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["gpt-smal-cpu"], "did you mean 'gpt-small-cpu'?"),
        (["gpt-small-cpu", "--device=cuda"], "no CUDA device"),
        (["gpt-small-cpu", "--set=plan.tp=2", "--set=gpus=2"], "tp = 2 is not measured"),
        (["gpt-small-cpu", "--set=plan.zero=1", "--set=gpus=2"], "zero = 1 is not measured"),
        (["gpt-small-cpu", "--set=plan.optimizer=lamb"], "torch has no lamb"),
        (["gpt-small-cpu", "--set=plan.precision=fp8"], "'fp8' is not measured; set fp32 or bf16"),
        (["gpt-small-cpu", "--set=model.positions=alibi"], "positions = 'alibi'"),
        (["gpt-small-cpu", "--set=model=resnet50"], "resnet50"),
        (["gpt-small-cpu", "--set=model.layers=1000000"], "GiB of this host's"),
        (["gpt-small-cpu", "--set=stack=megatron-core"], "has kernels that plain torch has not"),
        (["gpt-small-cpu", "--profile=nowhere"], "--profile: no file named"),
        (["gpt-small-cpu", "--rows=nowhere/a.csv"], "no folder 'nowhere'"),
    ],
)
def test_what_cannot_be_measured_is_one_line(arguments: list[str], said: str) -> None:
    assert said in refuse(*arguments)
