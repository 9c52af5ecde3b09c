"""`sim calibrate import`: tables of what others measured; of a cut file, what precedes the cut."""

import gzip
import json
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sim.collectives.libraries import profile
from sim.config.catalog import validate
from sim.interface.cli.main import main
from sim.jobs.traces import operation_times
from sim.variability.laws import Jitter
from tests.interface.formats.test_nccl_tests import HEAD, ROWS


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
    written = operation_times.read(tmp_path / "o.csv")
    assert [reading.source for reading in written] == [*4 * ["run.txt"], "t.json.gz", "t.json"]


def nccl_tests(iterations: list[float] | None) -> str:
    """JSON of nccl-tests on 8 GPUs."""
    results = []
    for power in range(3, 24):
        time = 20.0 + 2.0**power / 1e5
        rate = 2.0**power / time * 1e-3
        place = {"time": time, "alg_bw": rate, "bus_bw": 1.75 * rate}
        each = {"times_us": [time * factor for factor in iterations]} if iterations else {}
        results.append(
            {"size": 2**power, "type": "float", "out_of_place": place}
            | {"out_of_place_per_iter": each}
        )
    return json.dumps({"args": ["all_reduce_perf"], "results": results})


def test_iterations_timed_one_by_one_make_a_jitter_table(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(nccl_tests([0.98, 1.0, 1.02]))
    result = imported(tmp_path / "run.json")
    assert result.exit_code == 0, result.output
    table = tomllib.loads(result.stdout[result.stdout.index("[[jitter.cause]]") :])
    jitter = validate(table["jitter"], Jitter, "jitter")
    assert jitter.causes[0].law.sigma == pytest.approx(0.02, rel=0.01)
    (tmp_path / "run.json").write_text(nccl_tests(None))
    assert "jitter" not in imported(tmp_path / "run.json").stdout


def test_nccl_tests_become_the_profile_of_their_cluster(tmp_path: Path) -> None:
    pytest.importorskip("scipy")
    pytest.importorskip("tomli_w")
    (tmp_path / "run.json").write_text(nccl_tests(None))
    out = tmp_path / "ours.toml"
    result = imported(tmp_path / "run.json", "--out", out, "--topology", "dgx-a100-hdr")
    assert result.exit_code == 0, result.output
    assert "all_reduce among 8" in result.stdout
    written = profile.find(str(out))
    assert written is not None
    assert (written.provenance["files"], written.backend) == ("run.json", "nccl")
    refused = imported(tmp_path / "run.json", "--out", tmp_path / "x.toml")
    assert "name the cluster that was measured: --topology NAME" in refused.stderr
    assert not (tmp_path / "x.toml").exists()


def test_what_precedes_a_cut_is_kept(tmp_path: Path) -> None:
    (tmp_path / "run.txt").write_text((HEAD + ROWS)[:-40])
    result = imported(tmp_path / "run.txt", "--out", tmp_path / "o.csv")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "run.txt, line 9: has 7 of 13 columns" in result.stderr
    assert "the 2 readings before it are kept" in result.stderr
    assert len(operation_times.read(tmp_path / "o.csv")) == 2


def test_a_missing_file_is_one_line() -> None:
    result = imported("nowhere.txt")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
