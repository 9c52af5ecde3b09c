"""`sim init` writes a scenario that runs, and whose comments are keys that there are."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import sim
from sim.interface.cli.main import main

WORDS = ["init", "mine", "--model", "llama2-7b", "--topology", "dgx-h100-ndr", "--gpus", "16",
         "--global-batch", "64"]  # fmt: skip


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, WORDS)
    assert result.exit_code == 0, result.output
    assert result.stdout == "sim run mine\n"
    return tmp_path / "scenarios" / "mine.toml"


def test_what_it_writes_fits_and_is_found_by_its_name(page: Path) -> None:
    result = sim.run("mine")
    assert (result.ranks, result.fits) == (16, True)
    assert result.inputs.plan["zero"] > 0  # plain data parallelism does not fit


def test_every_key_that_it_comments_on_is_one(page: Path) -> None:
    written = page.read_text(encoding="utf-8")
    spoken = re.sub(r"^# (?=\[|[\w.]+ = )", "", written, flags=re.M)
    assert spoken.count("\n#") < written.count("\n#") - 10
    (page.parent / "all.toml").write_text(spoken, encoding="utf-8")
    scenario = sim.load("all")
    assert scenario.checkpoints is not None
    assert scenario.straggler[0].rank == 0
    assert sim.run(scenario).step_time > sim.run("mine").step_time / 2


def test_it_refuses_what_is_there_and_asks_nobody_where_nobody_is(page: Path) -> None:
    again = CliRunner().invoke(main, WORDS)
    assert again.exit_code == 2
    assert "is there already; take another name" in again.stderr
    assert CliRunner().invoke(main, [*WORDS, "--force"]).exit_code == 0
    alone = CliRunner().invoke(main, ["init", "other", "--gpus", "16"])
    assert alone.exit_code == 2
    assert "nobody to ask for --model, --topology, --global-batch" in alone.stderr
    odd = CliRunner().invoke(main, ["init", "../other", *WORDS[2:]])
    assert "is no plain name" in odd.stderr


def test_questions_are_asked_of_someone_at_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sim.interface.cli import init

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(init, "_asked", _typed(init))
    typed = ["gpt2", "gpt2-1.5b", "dgx-a100", "dgx-a100-hdr", "no", "0", "8", "16"]
    result = CliRunner().invoke(main, ["init", "asked"], input="\n".join([*typed, ""]))
    assert result.exit_code == 0, result.output
    assert sim.load("asked").gpus == 8
    told = ("no model named 'gpt2'", "did you mean 'dgx-a100-hdr'?", "not a valid integer", "range")
    assert all(words in result.output for words in told)


def _typed(init):  # type: ignore[no-untyped-def]
    """The questions, as if standard input were a terminal."""
    own = init._asked

    def asked(given):  # type: ignore[no-untyped-def]
        init.sys.stdin.isatty = lambda: True
        return own(given)

    return asked
