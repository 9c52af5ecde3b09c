"""Help: a line for each command, examples that can be typed, nothing cut off."""

import shlex

import click
import pytest
from click.testing import CliRunner

from sim.interface.cli.main import _COMMANDS, main

ALONE = ("list", "calibrate")  # without examples: nothing to choose, and commands of its own


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
