"""An order of passes from a file runs by any stack, as it does in torch's runtime."""

import subprocess
import sys
from pathlib import Path

import pytest

import sim

AHEAD = "0F0,0F1,0F2,0F3,0B0,0B1,0B2,0B3\n1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3\n"
JOB = {
    "plan.pp": 2, "plan.global_batch": 4, "plan.microbatch": 1, "plan.precision": "bf16",
    "topology": "dgx-h100-ndr", "gpus": 2,
}  # fmt: skip
SCRIPT = """
import sys, torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

dist.init_process_group("gloo")
stage = PipelineStage(torch.nn.Linear(8, 8), dist.get_rank(), 2, torch.device("cpu"))
schedule = _PipelineScheduleRuntime([stage], 4, loss_fn=torch.nn.MSELoss())
schedule._load_csv(sys.argv[1])
batch = torch.randn(8, 8)
for _ in range(2):
    given = [batch] if stage.is_first else []
    schedule.step(*given, **({"target": batch} if stage.is_last else {}))
"""


@pytest.fixture
def order(tmp_path: Path) -> Path:
    path = tmp_path / "ahead.csv"
    path.write_text(AHEAD)
    return path


@pytest.mark.parametrize(
    "stack", ["torchtitan-eager", "pytorch-eager", "megatron-lm-2022", "megatron-core", "nanotron"]
)
def test_stages_that_do_not_take_turns_are_played(stack: str, order: Path) -> None:
    def step(schedule: str) -> sim.Result:
        settings = {**JOB, "plan.schedule": schedule, "stack": stack}
        return sim.run("gpt2-one-gpu", settings=settings)

    ahead, flush = step(str(order)), step("gpipe")
    assert 0.5 < ahead.step_time / flush.step_time < 1.2  # the first stage has GPipe's order


@pytest.mark.long
def test_torchs_runtime_plays_them_too(order: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    script = tmp_path / "pipeline.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone"]
    done = subprocess.run([*command, script, order], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
