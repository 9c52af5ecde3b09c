"""Which lines of a script cost more than they did?"""

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import sim
from sim.config.errors import InputError
from sim.interface.cli.diff import SLOWER
from sim.interface.cli.main import main
from sim.jobs.recorded.file import read, write
from sim.jobs.recorded.recording import Recording

RECORDINGS = sorted((Path(__file__).parents[2] / "jobs/capturing/recordings").glob("*.json.gz"))
TOPOLOGY = {"topology": "dgx-h100-ndr"}


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """A recording, with texts of its lines."""
    (own,) = read(RECORDINGS[0])
    own = replace(own, texts=tuple(f"does {n}()" for n in range(len(own.lines))))
    write([own], tmp_path / "before.json.gz")
    return tmp_path / "before.json.gz"


def changed(before: Path, name: str, recording: Recording) -> Path:
    path = before.with_name(name)
    write([recording], path)
    return path


def moved(recording: Recording, lines: int) -> Recording:
    """The same script, so many lines further down."""
    places = (line.rpartition(":") for line in recording.lines)
    return replace(recording, lines=tuple(f"{p[0]}:{int(p[2]) + lines}" for p in places))


def test_a_recording_differs_from_itself_in_no_line(before: Path) -> None:
    answer = sim.diff(before, before, TOPOLOGY)
    assert not answer.lines
    assert answer.slower == 0.0
    assert "No line costs more" in str(answer)


def test_lines_that_move_are_the_same_lines(before: Path) -> None:
    (own,) = read(before)
    answer = sim.diff(before, changed(before, "after.json.gz", moved(own, 7)), TOPOLOGY)
    assert not answer.lines


def test_a_line_without_its_kernels_is_named_with_their_seconds(before: Path) -> None:
    (own,) = read(before)
    line = max({e.line for e in own.events if e.kind == "kernel"})
    kept = tuple(e for e in own.events if e.kind != "kernel" or e.line != line)
    less = replace(moved(own, 7), events=kept, memory=())
    answer = sim.diff(before, changed(before, "after.json.gz", less), TOPOLOGY)
    (change,) = [one for one in answer.lines if one.seconds]
    assert change.before == own.lines[line]
    assert change.now.seconds == 0.0
    assert change.text == own.texts[line]
    back = sim.diff(before.with_name("after.json.gz"), before, TOPOLOGY)
    assert [one.seconds for one in back.lines if one.seconds] == [-change.seconds]


def test_a_slower_step_fails_with_a_line_for_the_log(before: Path) -> None:
    (own,) = read(before)
    kernels = [e for e in own.events if e.kind == "kernel" and e.phase == "backward"]
    more = replace(own, events=(*own.events, *kernels, *kernels))
    after = changed(before, "after.json.gz", more)
    command = ["diff", str(before), str(after), "--topology", "dgx-h100-ndr", "--fail-if-slower"]
    answer = CliRunner().invoke(main, [*command, "3%"])
    assert answer.exit_code == SLOWER
    assert answer.stderr.startswith("slower: ")
    assert answer.stderr.count("\n") == 1
    assert "compute +" in answer.stderr
    assert CliRunner().invoke(main, [*command, "0%"]).exit_code == SLOWER
    assert CliRunner().invoke(main, [*command, "900%"]).exit_code == 0
    for unclear in ("much", "9", "1"):  # which may be per cent, or times
        refused = CliRunner().invoke(main, [*command, unclear])
        assert refused.exit_code == 2
    assert "may be 1% or 100%; write its %" in refused.stderr


def test_steps_of_other_samples_are_held_against_one_another_by_sample(before: Path) -> None:
    (own,) = read(before)
    twice = (*own.events, *(e for e in own.events if e.kind == "kernel"))
    after = changed(before, "after.json.gz", replace(own, events=twice, torch="2.0"))
    answer = sim.diff(before, after, TOPOLOGY)
    first, second = answer.step_times
    assert answer.slower == pytest.approx(second / first / 2.0 - 1.0)
    assert answer.unlike.keys() == {"samples a step", "torch"}
    said = str(answer)
    assert f"as many samples take {abs(answer.slower):.1%}".replace("%", " %") in said
    assert f"torch: {own.torch} before, 2.0 after" in said
    assert "Simulated on 64 GPUs (H100 80GB SXM)." in said


@pytest.mark.parametrize("change", [{"samples": 1}, {"world": 128}])
def test_seconds_that_are_no_longer_comparable_fail_no_check(
    before: Path, change: dict[str, int]
) -> None:
    (own,) = read(before)
    after = changed(before, "after.json.gz", replace(own, **change))
    command = ["diff", str(before), str(after), "--topology", "dgx-h100-ndr"]
    assert CliRunner().invoke(main, command).exit_code == 0
    refused = CliRunner().invoke(main, [*command, "--fail-if-slower", "3%"])
    assert refused.exit_code == 2
    assert "the recordings are unlike" in refused.stderr


def test_a_job_of_a_plan_has_no_lines() -> None:
    with pytest.raises(InputError, match="no lines of a script"):
        sim.diff("megatron-1.7b", "megatron-1.7b")
