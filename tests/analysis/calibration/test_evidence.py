"""Traces become tables of kernels, of the host and of collectives, which `sim validate` reads."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sim.hardware.device import load
from sim.hardware.kernels import dispatch
from sim.hardware.kernels.time import kernel_time
from sim.interface.cli.main import main
from sim.jobs.traces.kineto_operators import elementwise
from sim.jobs.traces.operation_times import read
from sim.model.kernels import Gemm
from tests.jobs.traces.synthetic import Machine

H100 = "h100-80gb-sxm"
PRODUCT = Gemm(name="forward", m=4096, n=8192, k=2048, precision="bf16")
SLOWER = 1.25


def trace(path: Path, rank: int, reduce: float) -> Path:
    """Two equal products, 25 % slower than the device's file says, a sum, an all-reduce."""
    machine = Machine(rank)
    for _ in range(2):
        machine.op("aten::mm", 20.0)
        shapes = {"Input Dims": [[4096, 2048], [2048, 8192]], "Input type": ["c10::BFloat16"] * 2}
        machine.events[-1]["args"] = shapes
        machine.launch(1e6 * SLOWER * kernel_time(PRODUCT, load(H100).in_bursts()))
        machine.think(20.0)
    machine.op("aten::add", 20.0)
    machine.events[-1]["args"] = {"Input Dims": [[1 << 26]] * 2, "Input type": ["float"] * 2}
    machine.launch(300.0, "elementwise")
    machine.think(20.0)
    machine.reduce(reduce, elements=1 << 26)
    return machine.write(path)


def run(*words: object) -> Any:
    result = CliRunner().invoke(main, list(map(str, words)))
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("traces")
    ranks = [trace(folder / f"{n}.json", n, us) for n, us in enumerate((900.0, 500.0))]
    document = json.loads(ranks[0].read_text()) | {"with_stack": 1, "cuda_runtime_version": 12040}
    document["deviceProperties"][0]["name"] = "NVIDIA H100 80GB HBM3"
    ranks[0].write_text(json.dumps(document))
    out = folder / "mine.csv"
    return out, run("calibrate", "import", *ranks, "--as", H100, "--out", out).stdout


def test_it_says_what_was_read_from_how_many_calls_on_which_software(
    imported: tuple[Path, str],
) -> None:
    _, text = imported
    assert "HBM3, CUDA 12.4; the host also spent time on recording stacks" in text
    assert "1.json: a device that the file does not name, software that the file" in text
    rows = {line.split("  ")[1].strip(): line.split()[-3:-1] for line in text.splitlines()[2:7]}
    assert rows["products"] == ["1", "4"]
    assert rows["memory-bound kernels"] == ["1", "2"]
    assert rows["host, by operator"] == ["2", "6"]
    assert rows["all_reduce"] == ["1", "1"]


def test_kernels_are_read_by_validate(imported: tuple[Path, str]) -> None:
    out, _ = imported
    answer = json.loads(run("validate", "--kernels", out, "--as", H100, "--json").stdout)
    groups = {row["group"]: row for row in answer["errors"]}
    assert groups["products bf16, m above 1024"]["bias"] == pytest.approx(1 / SLOWER - 1, abs=1e-5)
    (added,) = (run for run in answer["runs"] if run["group"] == "memory-bound, add")
    assert (added["part"], added["measured"]) == (f"{3 * 4 * (1 << 26):,} B", pytest.approx(3e-4))


def test_the_host_is_a_profiles_table(imported: tuple[Path, str]) -> None:
    out, _ = imported
    host = dispatch.read(out.with_stem("mine-host"), out)
    assert {time.operator: time.calls for time in host} == {"mm": 4, "add": 2}


def test_a_collective_lasts_as_on_the_rank_that_came_last(imported: tuple[Path, str]) -> None:
    out, _ = imported
    table = out.with_stem("mine-collectives")
    (reduced,) = read(table)
    assert (reduced.bytes, reduced.seconds) == (2.0 * (1 << 26), pytest.approx(5e-4))
    words = ("validate", "--collectives", table, "--on", "dgx-h100-ndr", "--json")
    (held,) = json.loads(run(*words).stdout)["runs"]
    assert held["measured"] == pytest.approx(5e-4)


def test_a_trace_without_any_of_them_is_refused(tmp_path: Path) -> None:
    machine = Machine()
    machine.launch(100.0)
    path = machine.write(tmp_path / "trace.json")
    words = ["calibrate", "import", str(path), "--as", H100, "--out", str(tmp_path / "x.csv")]
    result = CliRunner().invoke(main, words)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "record_shapes=True" in result.stderr


def test_a_trace_of_another_generation_is_refused(imported: tuple[Path, str]) -> None:
    trace, out = imported[0].with_name("0.json"), imported[0].with_name("other.csv")
    words = ["calibrate", "import", str(trace), "--as", "mi300x", "--out", str(out)]
    result = CliRunner().invoke(main, words)
    assert (result.exit_code, out.exists()) == (2, False)
    recorded = "was recorded on 'NVIDIA H100 80GB HBM3'"
    fault = f"{recorded}, but --as names a device of generation 'cdna3'; write --as h100"
    assert fault in result.stderr


@pytest.mark.parametrize(
    ("name", "strides", "moved"),
    [
        ("aten::mul", [[64, 1], [1, 0]], 64 * 64 * 4 + 64 * 4 + 64 * 64 * 4),
        ("aten::copy_", [[64, 1], [64, 1]], 2 * 64 * 64 * 4),
        ("aten::mean", [[64, 1], [64, 1]], None),
    ],
)
def test_elementwise_work_moves_its_operands_and_its_result(
    name: str, strides: list[list[int]], moved: float | None
) -> None:
    args = {"Input Dims": [[64, 64]] * 2, "Input type": ["float"] * 2, "Input Strides": strides}
    found = elementwise({"name": name, "args": args})
    assert (found and found.bytes) == moved
