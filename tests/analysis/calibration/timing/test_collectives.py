"""`sim calibrate collectives` on real gloo ranks: it keeps readings, resumes, ends its ranks."""

import multiprocessing
import os
import signal
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from sim.analysis.calibration.timing import collectives
from sim.analysis.calibration.timing.collective_suite import CollectiveCase, collective_cases
from sim.analysis.calibration.timing.collectives import PASSES
from sim.collectives.libraries import profile
from sim.interface.cli.main import main
from sim.jobs.traces import operation_times
from sim.jobs.traces.operation_times import OperationTime

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")


def calibrated(table: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["calibrate", "collectives", "--out", str(table), *arguments])


@pytest.mark.long
def test_a_table_that_was_interrupted_is_completed(tmp_path: Path) -> None:
    table = tmp_path / "gloo.csv"
    assert calibrated(table, "--largest", "8 B").exit_code == 0
    first = operation_times.read(table)
    assert len({(r.operation, r.bytes) for r in first}) == len(first) / PASSES["quick"] == 7
    lines = table.read_text().splitlines(keepends=True)
    table.write_text("".join(lines[:-3]) + lines[-3][:9])
    result = calibrated(table, "--largest", "8 B")
    assert result.exit_code == 0, result.output
    second = operation_times.read(table)
    assert second[:-3] == first[:-3]
    assert [r.operation for r in second] == [r.operation for r in first]
    assert all(reading.ranks == 2 and reading.sigma > 0 for reading in second)


@pytest.mark.long
def test_what_is_not_timed_within_the_minutes_is_timed_by_the_next_call(tmp_path: Path) -> None:
    table = tmp_path / "gloo.csv"
    over = calibrated(table, "--largest", "8 B", "--minutes", "0")
    assert over.exit_code == 0
    assert "the same command goes on" in over.stderr
    assert operation_times.read(table) == []
    assert calibrated(table, "--largest", "8 B", "--minutes", "60").exit_code == 0
    assert len(operation_times.read(table)) == 7 * PASSES["quick"]


def test_a_complete_table_becomes_a_profile_without_being_timed_again(tmp_path: Path) -> None:
    pytest.importorskip("scipy")
    pytest.importorskip("tomli_w")
    complete = [
        OperationTime(
            operation=case.kind, seconds=1e-4 + case.size / 1e9, ranks=2, bytes=float(case.size)
        )
        for case in PASSES["quick"] * list(collective_cases(2, 2, "quick", 2.0 * 2**20))
    ]
    operation_times.write(complete, tmp_path / "gloo.csv")
    result = calibrated(tmp_path / "gloo.toml", "--largest", "1 MiB")
    assert result.exit_code == 0, result.output
    assert "all_reduce among 2" in result.stdout
    fabric = profile.find(str(tmp_path / "gloo.toml"))
    assert fabric is not None
    assert (fabric.backend, fabric.provenance["processes"], len(fabric.residuals)) == ("gloo", 2, 7)
    assert len(operation_times.read(tmp_path / "gloo.csv")) == len(complete)


on_rank = collectives._on_rank


def second_dies_after_three_cases(rank: int, cases: Sequence[CollectiveCase], *others: Any) -> None:
    on_rank(rank, cases[:3] if rank == 1 else cases, *others)
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_rank_that_dies_ends_the_others_and_the_table_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, before = tmp_path / "gloo.csv", {*multiprocessing.active_children()}
    monkeypatch.setattr(collectives, "_on_rank", second_dies_after_three_cases)
    result = calibrated(table, "--suite", "full", "--largest", "4 MiB")
    assert result.exit_code == 2
    assert "died by signal 9; the other ranks were ended" in result.stderr
    assert result.stderr.count("error:") == 1
    assert {*multiprocessing.active_children()} == before
    assert len(operation_times.read(table)) >= 2


def test_one_rank_is_timed_by_itself(tmp_path: Path) -> None:
    result = calibrated(tmp_path / "one.csv", "--ranks", "1", "--largest", "8 B")
    assert result.exit_code == 0, result.output
    assert {reading.ranks for reading in operation_times.read(tmp_path / "one.csv")} == {1}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--largest", "3 parsec"), "--largest"),
        (("--backend", "nccl"), "use --backend gloo"),
        (("--ranks", "0"), "--ranks"),
    ],
)
def test_what_cannot_be_timed_is_one_line(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    import torch

    if "nccl" in arguments and torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    result = calibrated(tmp_path / "x.csv", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "x.csv").exists()


@pytest.mark.parametrize("command", [["kernels", "--device=cpu"], ["collectives"]])
def test_what_cannot_be_a_profile_is_refused_before_anything_is_timed(
    tmp_path: Path, command: list[str]
) -> None:
    (tmp_path / "folder.toml").mkdir()
    for name, message in (("x.txt", "unknown ending; end it in"), ("folder.toml", "is a folder")):
        result = CliRunner().invoke(main, ["calibrate", *command, f"--out={tmp_path / name}"])
        assert (result.exit_code, result.stdout) == (2, "")
        assert message in result.stderr
        assert result.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["folder.toml"]


@pytest.mark.parametrize("size", ["2 B", "-5 MiB"])
def test_sizes_that_end_before_the_first_are_refused(tmp_path: Path, size: str) -> None:
    result = calibrated(tmp_path / "x.csv", f"--largest={size}")
    assert result.exit_code == 2
    assert "leaves nothing to time" in result.stderr
    assert not (tmp_path / "x.csv").exists()


def test_another_table_is_not_continued(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    result = calibrated(tmp_path / "x.csv")
    assert (result.exit_code, result.stdout) == (2, "")
    assert (tmp_path / "x.csv").read_text() == "a,b\n1,2\n"


def test_missing_torch_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    result = calibrated(tmp_path / "x.csv")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "needs torch" in result.stderr
