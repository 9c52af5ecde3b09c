"""`sim calibrate import`: tables of what others measured, and what a cut file leaves."""

import gzip
import json
from pathlib import Path

from click.testing import CliRunner, Result

from sim import reading
from sim.cli import main
from tests.formats.test_nccl_tests import HEAD, ROWS


def imported(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["calibrate", "import", *map(str, arguments)])


def test_files_of_both_kinds_become_one_table(tmp_path: Path) -> None:
    (tmp_path / "run.txt").write_text(HEAD + ROWS)
    event = {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 0, "dur": 5.0}
    trace = json.dumps({"traceEvents": [event]}).encode()
    (tmp_path / "t.json.gz").write_bytes(gzip.compress(trace))
    (tmp_path / "t.json").write_bytes(trace)
    files = [tmp_path / name for name in ("run.txt", "t.json.gz", "t.json")]
    result = imported(*files, "--out", tmp_path / "o.csv")
    assert result.exit_code == 0, result.output
    assert "all_reduce" in result.stdout
    assert "kernel gemm" in result.stdout
    found = reading.read(tmp_path / "o.csv")
    assert [one.source for one in found] == [*4 * ["run.txt"], "t.json.gz", "t.json"]


def test_what_stands_before_a_cut_is_kept(tmp_path: Path) -> None:
    (tmp_path / "run.txt").write_text((HEAD + ROWS)[:-40])
    result = imported(tmp_path / "run.txt", "--out", tmp_path / "o.csv")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "run.txt, line 9: has 7 of 13 columns" in result.stderr
    assert "the 2 readings before it are kept" in result.stderr
    assert len(reading.read(tmp_path / "o.csv")) == 2


def test_a_file_that_is_not_there_is_one_line() -> None:
    result = imported("nowhere.txt")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
