"""Mistakes that were once answered with a line about something else."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from sim.interface.cli.main import main

RECORDINGS = Path(__file__).parents[2] / "jobs" / "capturing" / "recordings"
RECORDING = str(next(RECORDINGS.glob("ddp-*.json.gz")))
ON = ("--topology", "dgx-h100-ndr")
RANK = "sharing.straggler=[{kind='constant',factor=2.0,ranks=[5]}]"
DS = (*ON, "--model", "llama3-8b", "--gpus", "8")
FILES = {
    "rank0.json": {"traceEvents": []},
    "model.json": {"model_type": "qwen2"},
    "result.json": {"step_time": 1.0},
    "batch.json": {
        "train_batch_size": 64,
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 3,
    },
    "two.json": {"train_batch_size": 64, "bf16": {"enabled": True}, "fp16": {"enabled": True}},
    "hpz.json": {"train_batch_size": 64, "zero_optimization": {"zero_hpz_partition_size": 3}},
}
JOB = """
model = "llama3-8b"
topology = "dgx-h100-ndr"
plan.global_batch = 8
"""
LOOP = """
model = "llama3.2-1b"
topology = "dgx-h100-ndr"
gpus = 8
plan = { global_batch = 16 }
[reinforcement]
prompts = 8
answers = 4
prompt = { law = "constant", value = 50, cap = 64 }
answer = { law = "constant", value = 200, cap = 512 }
servers = { gpus = 8 }
"""
CURVE = ("--critical-batch", "64", "--least-samples", "1e4")

LINES = [
    (("report", "gpt3-175b-megatron"), "it is an option: sim run SCENARIO --report"),
    (("run", "gpt2-one-gpu", "--width", "3.4in"), "--width: there is no picture; add --picture"),
    (("run", RECORDING, *ON, "--set", "plan.tp=2"), "setting plan.tp: a recorded script keeps"),
    (("run", "missing.json", *ON), "missing.json: is not there"),
    (("run", "ps-ssp", "--set", "sharing.method=[1]"), "sharing: method = [1] is unknown"),
    (("run", "empty.json", *ON), "empty.json: is no recording"),
    (("run", "binary"), "the file of that name does not end in .toml"),
    (("run", "bin.toml"), "bin.toml: is not UTF-8 text"),
    (("plan", "empty.json", "dgx-h100-ndr", "--global-batch", "8"), "has no model_type"),
    (("run", "--model", "empty.json", *ON, "--set", "plan.global_batch=8"), "has no model_type"),
    (("show", "empty.json"), "empty.json: has no model_type"),
    (("import", "nanotron", "empty.yaml", *ON), "empty.yaml, the document: is no table"),
    (("import", "nanotron", "", *ON), "sim import: nothing to read"),
    (("import", "megatron", "--num-layers 2", "--out", "x.toml", *ON), "'--out' after"),
    (("import", "megatron", "x.sh", *ON), "x.sh: "),
    (("import", "megatorn", "x.sh", *ON), "did you mean 'megatron'"),
    (("plan", "dgx-h100-ndr", "gpt2-124m", "--global-batch", "8"), "that is a model"),
    (("run", "llama3-8b"), "that is a model: `sim init NAME --model llama3-8b` writes a scenario"),
    (("plan", "ps-async", "dgx-h100-ndr", "--global-batch", "8"), "that is a scenario"),
    (("show", "ps-bsp", "--gpus=4"), "ps-bsp has no number of GPUs"),
    (
        ("plan", "Qwen9-7B", "dgx-h100-ndr", "--global-batch", "8"),
        "Qwen9-7B/config.json: is not valid JSON",
    ),
    (("plan", "job.toml", "dgx-h100-ndr", "--global-batch", "8"), "is a scenario, not a model"),
    (("plan", "loop.toml", "dgx-h100-ndr"), "which leaves none to the trainer"),
    (("show", "job.toml"), "job.toml: is a scenario, not a topology; play it with `sim run"),
    (("collective", "all_reduc", "1 B", "dgx-a100-hdr"), "did you mean 'all_reduce'"),
    (("workers", "all-reduce-ddp", "--counts", "1,8", "--set", RANK, *CURVE), "--counts 1, all-"),
    (("workers", "all-reduce-ddp", "--counts", "0,8"), "is no rising list of worker numbers"),
    (("collective", "all_reduce", "-1 MiB", "dgx-a100-hdr"), "'-1' is read as an option"),
    (("collective", "all_reduce", "0 B", "dgx-a100-hdr"), "is less than a byte"),
    (("capture", "missing.py", "--world", "2"), "missing.py: is no file"),
    (("capture", "missing.py", "--world", "2", "--out", "x.json"), "missing.py: is no file"),
    (("run", "gpt2-one-gpu", "--pictur", "x.png"), "did you mean '--picture'?"),
    (("runn", "gpt2-one-gpu"), "did you mean 'run'?"),
    (("run", "rank0.json"), "play it with `sim replay rank0.json`"),
    (("run", "model.json"), "give it as --model model.json"),
    (("run", "result.json", *ON), "`sim compare` reads answers of"),
    (("run", "meta-llama/Llama-2-13b-hf"), "for a model of the Hugging Face hub, give the path"),
    (("plan", "meta-llama/Llama-2-13b-hf", "dgx-h100-ndr", "--global-batch", "8"), "Face hub"),
    (("run", "gpt2-one-gpu", "--samples", "2", "--seeds", "2"), "give one of the two"),
    (("import", "deepspeed", "batch.json", *DS), "64 is not 4 at a time x 3 times x 8 GPUs"),
    (("import", "deepspeed", "two.json", *DS), "bf16 is enabled, too"),
    (("import", "deepspeed", "hpz.json", *DS), "3 does not divide 8 GPUs"),
    (("compare", "result.json", ": plan.microbatch=2"), "result.json: is no result"),
]


@pytest.mark.parametrize(("asked", "said"), LINES, ids=lambda own: " ".join(own)[:40])
def test_a_mistake_is_answered_where_it_is(
    asked: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.json").write_text("{}")
    Path("empty.yaml").touch()
    for name, content in FILES.items():
        Path(name).write_text(json.dumps(content))
    Path("job.toml").write_text(JOB)
    Path("loop.toml").write_text(LOOP)
    Path("Qwen9-7B").mkdir()
    Path("Qwen9-7B/config.json").touch()
    for name in ("binary", "bin.toml"):
        Path(name).write_bytes(b"\xff\xfe" + os.urandom(64))
    ran = CliRunner().invoke(main, asked)
    assert ran.exit_code == 2, ran.output
    assert said in ran.output
    assert ran.output.count("\n") == 1, "and nothing else was said or done"
