"""Help: a line for each command, examples that can be typed, nothing cut off."""

import json
import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from sim.interface.cli.files import DOES_NOT_FIT
from sim.interface.cli.main import _COMMANDS, main

ALONE = ("list", "calibrate")  # without examples: nothing to choose, and commands of its own

JOB = "gpt2-one-gpu"
SMALL = ("--set", "device.memory=6 GiB")
ASKED = {
    "run": (JOB,),
    "run of samples": (JOB, "--samples", "3"),
    "explain": (JOB,),
    "compare": (JOB, ": plan.microbatch=8"),
    "sweep": (JOB, "--vary", "plan.microbatch=4,8", "--no-store", "--jobs", "1"),
    "goodput": (JOB, "--days", "1"),
    "cost": (JOB, "--tokens", "1e9"),
    "workers": (
        "all-reduce-ddp", "--counts", "1,2", "--critical-batch", "64", "--least-samples", "1e6",
        "--set", "model=gpt3-175b", "--set", "sharing.steps=2",
    ),
}  # fmt: skip
ARGUMENTS = (
    "--num-layers 2 --hidden-size 256 --num-attention-heads 4 --seq-length 128 --vocab-size 512"
    " --micro-batch-size 1 --global-batch-size 8"
)


def shown(*words: str) -> str:
    result = CliRunner().invoke(main, [*words, "--help"], prog_name="sim")
    assert result.exit_code == 0
    return result.output


def test_every_command_has_its_line_among_those_of_its_kind() -> None:
    listed = [name for names in _COMMANDS.values() for name in names]
    assert [main.commands[name].name for name in listed] == [*main.commands]
    page = shown()
    for name, command in main.commands.items():
        first = (command.help or "").split(".")[0].split("\n")[0]
        assert f"  {name}" in page
        assert f"{first.rstrip('.')}." in page  # whole, on one line
    assert "..." not in page.partition("Commands")[2]
    assert max(map(len, page.splitlines())) <= 80


@pytest.mark.parametrize("name", [name for name in main.commands if name not in ALONE])
def test_examples_are_words_that_the_command_takes(name: str) -> None:
    lines = shown(name).partition("Examples:")[2].strip().splitlines()
    assert lines
    for line in lines:
        sim, own, *words = shlex.split(line)
        command = main.commands[own]
        assert sim == "sim"
        with command.make_context(own, words, parent=click.Context(main)) as context:
            assert context.params


def test_bounds_that_nobody_asks_for_are_told_only_beyond_them() -> None:
    assert "1000000000" not in shown("run")
    refused = CliRunner().invoke(main, ["run", "gpt2-one-gpu", "--gpus", "0"])
    assert refused.exit_code == 2
    assert "0 is not in the range 1<=x<=1000000000" in refused.stderr
    assert CliRunner().invoke(main, ["run", "gpt2-one-gpu", "--gpus", "two"]).exit_code == 2


@pytest.mark.parametrize("name", ASKED)
def test_a_job_that_does_not_fit_has_a_code_of_its_own(name: str) -> None:
    small = () if name == "workers" else SMALL
    refused = CliRunner().invoke(main, [name.split()[0], *ASKED[name], *small])
    assert refused.exit_code == DOES_NOT_FIT == 3, refused.output
    assert refused.stdout  # the answer is there, too
    if name not in ("workers", "run of samples"):
        assert CliRunner().invoke(main, [name, *ASKED[name]]).exit_code == 0


def test_a_search_that_finds_nothing_is_a_line_and_the_code() -> None:
    words = ["plan", "llama3-8b", "dgx-h100-ndr", "--gpus", "8", "--global-batch", "64"]
    only = [f"--only={own}" for own in ("zero=0", "tp=1", "pp=1", "cp=1", "recompute=none")]
    refused = CliRunner().invoke(main, [*words, *only, "--jobs", "1"])
    assert refused.exit_code == DOES_NOT_FIT
    assert "none of 4 layouts fits in memory" in refused.stderr
    assert refused.stderr.splitlines()[-1].startswith("error: ")


def test_json_is_an_object_where_nothing_fits_too() -> None:
    words = ["plan", "llama3-70b", "dgx-h100-ndr", "--gpus", "8", "--global-batch", "8", "--json"]
    result = CliRunner().invoke(main, [*words, "--only", "zero=0"])
    assert result.exit_code == 3
    answer = json.loads(result.stdout)
    assert (answer["fits"], "fits in memory" in answer["reason"]) == (False, True)


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
    assert "no number of GPUs is given" in run().output
    assert "how many GPUs" not in run("--gpus", "8", "--force").output


@pytest.mark.parametrize("name", ["../mine", "a\x1b[31mb", "mine.toml"])
def test_a_name_is_plain(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    refused = run("--name", name)
    assert "is no plain name" in refused.output
    assert [*tmp_path.iterdir()] == []
