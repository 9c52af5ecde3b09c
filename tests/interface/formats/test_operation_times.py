"""Measured times survive their file, and a wrong line is named."""

import math
from pathlib import Path

import pytest

from sim.config.errors import InputError
from sim.jobs.traces import operation_times
from sim.jobs.traces.operation_times import OperationTime

REDUCTION = OperationTime(
    operation="all_reduce", seconds=4.2e-5, ranks=8, bytes=1048576.0, sigma=0.031
)
PRODUCT = OperationTime(operation="kernel", name="gemm, of 128x64", seconds=2e-4, samples=12)


def test_times_survive_their_file(tmp_path: Path) -> None:
    operation_times.write([REDUCTION, PRODUCT], tmp_path / "r.csv")
    first, second = operation_times.read(tmp_path / "r.csv")
    assert first == REDUCTION
    assert second.name == "gemm, of 128x64"
    assert math.isnan(second.bytes)


@pytest.mark.parametrize(
    "bad", ["all_reduce,nan,,2,1,1,8,,1,,", "all_reduce,1e-5,,2", "x,1,,0,,,,,,,"]
)
def test_a_line_that_is_not_a_time_is_named(tmp_path: Path, bad: str) -> None:
    lines = operation_times.heading() + operation_times.line(REDUCTION) + bad + "\n"
    (tmp_path / "r.csv").write_text(lines)
    with pytest.raises(InputError, match="line 3"):
        operation_times.read(tmp_path / "r.csv")


def test_another_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="line 1: has other headings"):
        operation_times.read(tmp_path / "r.csv")


def test_sigma_is_that_of_the_logarithms() -> None:
    kept = operation_times.of_samples([1.0, math.e, math.e**2])
    assert kept["sigma"] == pytest.approx(1.0)
    assert kept["seconds"] == pytest.approx(math.e)
