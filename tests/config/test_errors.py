"""Mistakes of the user: one line, wherever they are raised."""

import pickle
from pathlib import Path

import pytest
import simpy

import sim
from sim.config.errors import InputError
from sim.config.reads import packaged_root

MISTAKE = ("topology", "a node without a fabric", "set [node]")

SCENARIO = (packaged_root() / "scenarios" / "gpt2-one-gpu.toml").read_text()


def test_a_mistake_is_one_line_wherever_a_process_makes_it() -> None:
    # SimPy makes the exception of a failed process anew, from its arguments.
    env = simpy.Environment()

    def inner() -> simpy.events.ProcessGenerator:
        yield env.timeout(1)
        raise InputError(*MISTAKE)

    def outer() -> simpy.events.ProcessGenerator:
        yield env.process(inner())

    env.process(outer())
    with pytest.raises(InputError, match=r"^topology: a node without a fabric; set .node.$"):
        env.run()


def test_a_mistake_comes_whole_from_another_process() -> None:
    copy = pickle.loads(pickle.dumps(InputError(*MISTAKE)))
    assert (copy.where, copy.what, copy.remedy) == MISTAKE
    assert str(copy) == str(InputError(*MISTAKE))
    assert str(InputError("a", "b")) == "a: b"


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
