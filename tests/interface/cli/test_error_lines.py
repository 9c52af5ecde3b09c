"""Mistakes that were once answered with a line about something else."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from sim.interface.cli.main import main

RECORDINGS = Path(__file__).parents[2] / "jobs" / "capturing" / "recordings"
RECORDING = str(next(RECORDINGS.glob("ddp-*.json.gz")))
ON = ("--topology", "dgx-h100-ndr")
RANK = "sharing.straggler=[{kind='constant',factor=2.0,ranks=[5]}]"
CURVE = ("--critical-batch", "64", "--least-samples", "1e4")

LINES = [
    (("run", RECORDING, *ON, "--set", "plan.tp=2"), "setting plan.tp: a recorded script keeps"),
    (("run", "missing.json", *ON), "missing.json: is not there"),
    (("run", "empty.json", *ON), "empty.json: is no recording"),
    (("run", "binary"), "the file of that name does not end in .toml"),
    (("run", "bin.toml"), "bin.toml: is not UTF-8 text"),
    (("plan", "empty.json", "dgx-h100-ndr", "--global-batch", "8"), "has no model_type"),
    (("run", "--model", "empty.json", *ON, "--set", "plan.global_batch=8"), "has no model_type"),
    (("show", "empty.json"), "empty.json: has no model_type"),
    (("import", "nanotron", "empty.yaml", *ON), "empty.yaml, the document: is no table"),
    (("import", "nanotron", "", *ON), "sim import: nothing to read"),
    (("import", "megatron", "--num-layers 2", "--out", "x.toml", *ON), "'--out' behind"),
    (("import", "megatron", "x.sh", *ON), "x.sh: "),
    (("import", "megatorn", "x.sh", *ON), "did you mean 'megatron'"),
    (("plan", "dgx-h100-ndr", "gpt2-124m", "--global-batch", "8"), "that is a model"),
    (("plan", "ps-async", "dgx-h100-ndr", "--global-batch", "8"), "that is a scenario"),
    (
        ("plan", "Qwen2.5-7B", "dgx-h100-ndr", "--global-batch", "8"),
        "did you mean 'Qwen2.5-7B/config.json'",
    ),
    (("collective", "all_reduc", "1 B", "dgx-a100-hdr"), "did you mean 'all_reduce'"),
    (("workers", "all-reduce-ddp", "--counts", "1,8", "--set", RANK, *CURVE), "--counts 1, all-"),
    (("workers", "all-reduce-ddp", "--counts", "0,8"), "are no numbers of workers"),
    (("collective", "all_reduce", "-1 MiB", "dgx-a100-hdr"), "'-1' is read as an option"),
    (("collective", "all_reduce", "0 B", "dgx-a100-hdr"), "is less than a byte"),
    (("capture", "missing.py", "--world", "2"), "missing.py: is no file"),
    (("capture", "missing.py", "--world", "2", "--out", "x.json"), "missing.py: is no file"),
]


@pytest.mark.parametrize(("asked", "said"), LINES, ids=lambda own: " ".join(own)[:40])
def test_a_mistake_is_answered_where_it_is(
    asked: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.json").write_text("{}")
    Path("empty.yaml").touch()
    Path("Qwen2.5-7B").mkdir()
    Path("Qwen2.5-7B/config.json").touch()
    for name in ("binary", "bin.toml"):
        Path(name).write_bytes(b"\xff\xfe" + os.urandom(64))
    ran = CliRunner().invoke(main, asked)
    assert ran.exit_code == 2, ran.output
    assert said in ran.output
    assert ran.output.count("\n") == 1, "and nothing else was said or done"
