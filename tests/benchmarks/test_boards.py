"""Boards told apart by two sweeps over the same products."""

import csv
import gzip
from pathlib import Path

import numpy as np
import pytest

from benchmarks.boards import main, scatter, sweep


def test_the_scatter_of_boards_is_found_beside_a_slope_and_outliers(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    shapes = [(512 * m, 512 * n, 512 * k) for m in range(1, 9) for n in range(1, 9) for k in (4, 9)]
    tables = []
    for name, slope in (("one", 0.0), ("two", 0.1)):
        paces = np.exp(0.02 * random.normal(size=len(shapes)))
        paces[::20] *= 1.5  # another kernel
        tables.append(tmp_path / f"{name}.csv.gz")
        with gzip.open(tables[-1], "wt", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["framework", "gemm_dtype", "m", "n", "k", "latency_ms"])
            for (m, n, k), pace in zip(shapes, paces, strict=True):
                writer.writerow(["trtllm", "bfloat16", m, n, k, 1e-8 * m * n * k * n**slope * pace])
    sweeps = [sweep(table, "trtllm", "bfloat16") for table in tables]
    products, deviation = scatter(*sweeps, above=0.0)
    assert products == len(shapes)
    assert deviation == pytest.approx(0.02 * 2**0.5, rel=0.25)


def test_a_handful_of_products_tells_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "few.csv.gz"
    with gzip.open(table, "wt", encoding="utf-8") as file:
        file.write("framework,gemm_dtype,m,n,k,latency_ms\ntrtllm,bfloat16,4096,4096,4096,30\n")
    main([str(table), str(table)])
    assert capsys.readouterr().out == "1 products: too few to tell boards apart\n"
