"""`sim calibrate collectives` on real gloo ranks: it keeps, it goes on, it ends with its ranks."""

import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sim.calibration.timing import exchanges
from sim.calibration.timing.collectives import PASSES
from sim.cli.main import main
from sim.collectives.libraries import profile
from sim.formats import operation_times

pytest.importorskip("torch")


def calibrated(table: Path, *arguments: str) -> Result:
    known = ["calibrate", "collectives", "--out", str(table), *arguments]
    return CliRunner().invoke(main, known)


def test_a_table_that_was_interrupted_is_completed(tmp_path: Path) -> None:
    table = tmp_path / "gloo.csv"
    assert calibrated(table, "--largest", "8 B").exit_code == 0
    first = operation_times.read(table)
    assert len({(one.operation, one.bytes) for one in first}) == len(first) / PASSES["quick"] == 7
    lines = table.read_text().splitlines(keepends=True)
    table.write_text("".join(lines[:-3]) + lines[-3][:9])
    result = calibrated(table, "--largest", "8 B")
    assert result.exit_code == 0, result.output
    second = operation_times.read(table)
    assert second[:-3] == first[:-3]
    assert [one.operation for one in second] == [one.operation for one in first]
    assert all(one.ranks == 2 and one.sigma > 0 for one in second)


def test_a_complete_table_becomes_a_profile_without_being_timed_again(tmp_path: Path) -> None:
    pytest.importorskip("scipy")
    pytest.importorskip("tomli_w")
    complete = [
        operation_times.OperationTime(
            operation=one.kind, seconds=1e-4 + one.size / 1e9, ranks=2, bytes=float(one.size)
        )
        for one in PASSES["quick"] * list(exchanges.exchanges(2, 2, "quick", 2.0 * 2**20))
    ]
    operation_times.write(complete, tmp_path / "gloo.csv")
    result = calibrated(tmp_path / "gloo.toml", "--largest", "1 MiB")
    assert result.exit_code == 0, result.output
    assert "all_reduce among 2" in result.stdout
    found = profile.find(str(tmp_path / "gloo.toml"))
    assert found is not None
    assert (found.backend, found.provenance["processes"], len(found.residuals)) == ("gloo", 2, 7)
    assert len(operation_times.read(tmp_path / "gloo.csv")) == len(complete)


def test_a_rank_that_dies_ends_the_others_and_the_table_stays(tmp_path: Path) -> None:
    table = tmp_path / "gloo.csv"

    def strike() -> None:
        while not table.exists() or table.read_text().count("\n") < 3:
            time.sleep(0.05)
        os.kill(multiprocessing.active_children()[1].pid or 0, signal.SIGKILL)

    killer = threading.Thread(target=strike)
    killer.start()
    result = calibrated(table, "--suite", "full", "--largest", "4 MiB")
    killer.join()
    assert result.exit_code == 2
    assert "died by signal 9; the other ranks were ended" in result.stderr
    assert result.stderr.count("error:") == 1
    assert multiprocessing.active_children() == []
    assert len(operation_times.read(table)) >= 2


def test_one_rank_is_timed_by_itself(tmp_path: Path) -> None:
    result = calibrated(tmp_path / "one.csv", "--ranks", "1", "--largest", "8 B")
    assert result.exit_code == 0, result.output
    assert {one.ranks for one in operation_times.read(tmp_path / "one.csv")} == {1}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--largest", "3 parsec"), "--largest"),
        (("--backend", "nccl"), "use --backend gloo"),
        (("--ranks", "0"), "--ranks"),
    ],
)
def test_what_cannot_be_timed_is_one_line(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    import torch

    if "nccl" in arguments and torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    result = calibrated(tmp_path / "x.csv", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "x.csv").exists()


@pytest.mark.parametrize("command", [["kernels", "--device=cpu"], ["collectives"]])
def test_what_cannot_be_a_profile_is_refused_before_anything_is_timed(
    tmp_path: Path, command: list[str]
) -> None:
    (tmp_path / "folder.toml").mkdir()
    for name, said in (("x.txt", "unknown ending; end it in"), ("folder.toml", "is a folder")):
        result = CliRunner().invoke(main, ["calibrate", *command, f"--out={tmp_path / name}"])
        assert (result.exit_code, result.stdout) == (2, "")
        assert said in result.stderr
        assert result.stderr.count("\n") == 1
    assert [one.name for one in tmp_path.iterdir()] == ["folder.toml"]


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
