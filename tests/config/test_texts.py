"""Texts of files cannot steer a terminal; a byte order mark is no text."""

from pathlib import Path

import pytest

import sim
from sim.config.errors import InputError
from sim.config.reads import packaged_root

SCENARIO = (packaged_root() / "scenarios" / "gpt2-one-gpu.toml").read_text()


@pytest.mark.parametrize("text", ["\\u001b[2J", "x\\u0000y", "\\u009b31m"])
def test_control_characters_of_a_file_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "mine.toml").write_text(f'{SCENARIO}\n[plan.axes]\n"{text}" = 1\n')
    with pytest.raises(InputError, match="has control characters"):
        sim.run(tmp_path / "mine.toml")


def test_control_characters_of_a_setting_are_refused() -> None:
    with pytest.raises(InputError, match="has control characters"):
        sim.run("gpt2-one-gpu", {"plan.optimizer": "ad\x1b[2Jam"})


def test_tabs_and_ends_of_lines_are_no_control_characters() -> None:
    with pytest.raises(InputError, match="optimizer"):
        sim.run("gpt2-one-gpu", {"plan.optimizer": "ad\n\tam"})


def test_a_byte_order_mark_is_no_part_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(SCENARIO, encoding="utf-8-sig")
    assert sim.run(tmp_path / "mine.toml").step_time == sim.run("gpt2-one-gpu").step_time
