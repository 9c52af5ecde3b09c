"""Readings survive their file, and a wrong line is named."""

import math
from pathlib import Path

import pytest

from sim.calibration import operation_times as reading
from sim.calibration.operation_times import OperationTime
from sim.config.errors import InputError

ONE = OperationTime(operation="all_reduce", seconds=4.2e-5, ranks=8, bytes=1048576.0, sigma=0.031)
OTHER = OperationTime(operation="kernel", name="gemm, of 128x64", seconds=2e-4, samples=12)


def test_readings_survive_their_file(tmp_path: Path) -> None:
    reading.write([ONE, OTHER], tmp_path / "r.csv")
    first, second = reading.read(tmp_path / "r.csv")
    assert first == ONE
    assert second.name == "gemm, of 128x64"
    assert math.isnan(second.bytes)


@pytest.mark.parametrize(
    "bad", ["all_reduce,nan,,2,1,1,8,,1,,", "all_reduce,1e-5,,2", "x,1,,0,,,,,,,"]
)
def test_a_line_that_is_no_reading_is_named(tmp_path: Path, bad: str) -> None:
    (tmp_path / "r.csv").write_text(reading.heading() + reading.line(ONE) + bad + "\n")
    with pytest.raises(InputError, match="line 3"):
        reading.read(tmp_path / "r.csv")


def test_another_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="line 1: is not the heading"):
        reading.read(tmp_path / "r.csv")


def test_sigma_is_that_of_the_logarithms() -> None:
    found = reading.of_samples([1.0, math.e, math.e**2])
    assert found["sigma"] == pytest.approx(1.0)
    assert found["seconds"] == pytest.approx(math.e)
