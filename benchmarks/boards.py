"""How unlike boards of one model are, from two sweeps over the same products.

    python -m benchmarks.boards TABLE TABLE [--precision bfloat16] [--frameworks trtllm trtllm]
        [--above SECONDS]

aiconfigurator deals the products of a sweep to all GPUs of a node, one worker each
(collector/collect.py, parallel_run). The ratio of two sweeps therefore scatters by the boards of
both, and by whatever else differs: a bound on what boards do. A slope in the logarithms of m, n and
k is taken out first; the scatter is 1.4826 times the median distance from the median.
"""

import csv
import gzip
import math
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

LEAST_SIDE = 512  # a smaller one is bound by memory, whose clock is the same on every board
LEAST_PRODUCTS = 8  # two for each constant of the slope
Shape = tuple[int, int, int]


def sweep(path: Path, framework: str, precision: str) -> dict[Shape, float]:
    """Seconds of each product of a sweep."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return {
            (int(row["m"]), int(row["n"]), int(row["k"])): float(row["latency_ms"]) / 1e3
            for row in csv.DictReader(file)
            if (row["framework"], row["gemm_dtype"]) == (framework, precision)
        }


def scatter(
    first: dict[Shape, float], other: dict[Shape, float], above: float
) -> tuple[int, float]:
    """How many products both sweeps have, and how far their ratios scatter (one deviation)."""
    both = [s for s, seconds in first.items() if s in other and seconds > above]
    shapes = sorted(shape for shape in both if min(shape) >= LEAST_SIDE)
    if len(shapes) < LEAST_PRODUCTS:
        return len(shapes), math.nan
    ratios = np.log([first[shape] / other[shape] for shape in shapes])
    slopes = np.column_stack([np.ones(len(shapes)), np.log(shapes)])
    kept = np.ones(len(shapes), dtype=bool)
    for _ in range(4):  # outliers are other kernels, not other boards
        left = ratios - slopes @ np.linalg.lstsq(slopes[kept], ratios[kept], rcond=None)[0]
        kept = np.abs(left) < 3.5 * _deviation(left)
    return len(shapes), _deviation(left)


def _deviation(values: NDArray[np.float64]) -> float:
    return 1.4826 * float(np.median(np.abs(values - np.median(values))))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the scatter of two sweeps and what it leaves to a board of each."""
    parser = ArgumentParser(prog="python -m benchmarks.boards", description=__doc__)
    parser.add_argument("tables", type=Path, nargs=2)
    parser.add_argument("--precision", default="bfloat16")
    parser.add_argument("--frameworks", nargs=2, default=["trtllm", "trtllm"])
    parser.add_argument("--above", type=float, default=20e-3, metavar="SECONDS")
    options = parser.parse_args(arguments)
    sweeps = [
        sweep(path, framework, options.precision)
        for path, framework in zip(options.tables, options.frameworks, strict=True)
    ]
    products, deviation = scatter(*sweeps, options.above)
    each = deviation / math.sqrt(2)
    told = f"ratios scatter by {deviation:.1%}, a board by at most {each:.1%}"
    few = "too few to tell boards apart"
    print(f"{products} products: {few if math.isnan(deviation) else told}")


if __name__ == "__main__":
    main()
