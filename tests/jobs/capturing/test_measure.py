"""`sim measure --script`: a script's real steps on this CPU beside those that are played."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from sim import kind, questions, run
from sim.analysis.calibration.training.script import script_of
from sim.interface.cli.main import main
from sim.jobs.capturing.capture import capture_script
from sim.jobs.recorded.setup import RecordedScenario
from tests.jobs.capturing.conftest import MODEL

LOOP = """
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
for _ in range({steps}):
    tokens = torch.randint(VOCABULARY, (BATCH, LENGTH)).to(device)
    F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()
"""
TRAIN = """
device = "cuda" if torch.cuda.is_available() else "cpu"
model = Model().to(device)
""" + LOOP.format(steps=8)


def measured(script: Path, *options: str) -> tuple[int, str, str]:
    answer = CliRunner().invoke(main, ["measure", "--script", str(script), *options])
    return answer.exit_code, answer.stdout, answer.stderr


@pytest.mark.long
def test_time_and_memory_of_a_script_are_laid_beside_its_prediction(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(MODEL + TRAIN)
    code, said, errors = measured(script, "--steps", "3", "--device", "cpu", "--json")
    assert code == 0, errors
    answer = json.loads(said)
    assert answer["steps"] == 4  # two rounds of two
    assert answer["quantities"]["parameters"]["error"] == 0
    assert abs(answer["quantities"]["peak memory"]["error"]) < 0.03  # blocks are rounded up
    step = answer["quantities"]["step time"]
    assert step["measured"] > 0 < step["predicted"]


@pytest.mark.parametrize(
    ("source", "options", "said"),
    [
        (MODEL + TRAIN, ["--steps", "30"], "ended after 7 of 30 steps, not counting the first"),
        (MODEL + TRAIN, ["--steps", "2", "--topology", "nowhere"], "nowhere"),
        ("import torch\nnothing\n", [], "NameError"),
    ],
)
def test_a_script_that_cannot_be_measured_is_one_line(
    tmp_path: Path, source: str, options: list[str], said: str
) -> None:
    script = tmp_path / "train.py"
    script.write_text(source)
    code, out, errors = measured(script, *options)
    assert (code, out) == (2, "")
    (line,) = errors.splitlines()
    assert said in line


RANKS = """
device = "cuda" if torch.cuda.is_available() else "cpu"
dist.init_process_group("nccl" if device == "cuda" else "gloo")
model = nn.parallel.DistributedDataParallel(Model().to(device))
""" + LOOP.format(steps=4)


@pytest.mark.long
def test_ranks_that_torchrun_starts_are_measured_beside_a_capture_of_as_many(
    tmp_path: Path,
) -> None:
    script = tmp_path / "train.py"
    script.write_text(MODEL + RANKS)
    options = ("--world", "2", "--steps", "2", "--device", "cpu", "--json")
    code, said, errors = measured(script, *options)
    assert code == 0, errors
    answer = json.loads(said)
    assert answer["steps"] == 2
    assert answer["quantities"]["parameters"]["error"] == 0
    step = answer["quantities"]["step time"]
    assert step["measured"] > 0 < step["predicted"]


@pytest.mark.long
def test_the_script_of_a_job_is_captured_as_the_job_is_predicted(tmp_path: Path) -> None:
    job = kind.load("gpt2-one-gpu", {"model.layers": 2, "model.vocab": 8192})
    planned = questions.planned(kind.set_up(job)).job
    (tmp_path / "train.py").write_text(script_of(planned, job.name, "cuda", steps=3))
    recordings = capture_script(tmp_path / "train.py", (), world=1)
    played = RecordedScenario(
        name="played", record=recordings, topology=job.topology, stack=job.stack
    )
    captured, predicted = run(played), run(job)
    assert captured.parameters == predicted.parameters
    assert captured.step_time == pytest.approx(predicted.step_time, rel=0.1)
