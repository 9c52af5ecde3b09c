"""`sim import` writes files of the user's, and none that are there."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sim.interface.cli.main import main

ARGUMENTS = (
    "--num-layers 2 --hidden-size 256 --num-attention-heads 4 --seq-length 128 --vocab-size 512"
    " --micro-batch-size 1 --global-batch-size 8"
)


def run(*more: str) -> Result:
    words = ["import", "megatron", ARGUMENTS, "--topology", "dgx-h100-ndr", *more]
    return CliRunner().invoke(main, words)


def test_files_that_are_there_stay_unless_forced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("models", "scenarios"):
        (tmp_path / folder).mkdir()
    (tmp_path / "scenarios" / "mine.toml").write_text("mine")
    refused = run("--name", "mine")
    assert "scenarios/mine.toml: is there already; take another name, or --force" in refused.output
    assert (tmp_path / "scenarios" / "mine.toml").read_text() == "mine"
    assert not (tmp_path / "models" / "mine.toml").exists()
    assert run("--name", "mine", "--force").exit_code == 0
    assert (tmp_path / "models" / "mine.toml").exists()


def test_a_job_whose_size_nobody_says_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "nothing says how many GPUs there are" in run().output
    assert "how many GPUs" not in run("--gpus", "8", "--force").output


@pytest.mark.parametrize("name", ["../mine", "a\x1b[31mb", "mine.toml"])
def test_a_name_is_plain(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    refused = run("--name", name)
    assert "is no plain name" in refused.output
    assert [*tmp_path.iterdir()] == []
