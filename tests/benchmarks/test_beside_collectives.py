"""Kernels beside collectives: a trace made by hand."""

import pytest

from benchmarks.beside_collectives import ratios

# name, begin and end in us
SPANS = [
    ("add", 0, 50), ("add", 50, 100), ("cast", 0, 20), ("cast", 20, 100), ("nccl", 100, 300),
    ("add", 120, 180), ("cast", 180, 280), ("add", 290, 400), ("gemm", 0, 40), ("gemm", 40, 80),
    ("gemm", 100, 200),
]  # fmt: skip


def test_kernels_of_one_size_are_compared_that_run_alone_and_wholly_beside_a_collective():
    events = [
        {"ph": "X", "cat": "kernel", "name": name, "ts": begin, "dur": end - begin}
        for name, begin, end in SPANS
    ]
    found = ratios(events, "nccl", "^(?!.*gemm)", 1e-6)
    assert {name: ratio for (name, *_), ratio in found.items()} == pytest.approx({"add": 1.2})


def test_two_collectives_at_once_cover_what_one_of_them_does():
    names = [("add", 0, 50), ("add", 50, 100), ("nccl", 100, 150), ("nccl", 100, 150),
             ("add", 100, 200)]  # fmt: skip
    events = [
        {"ph": "X", "cat": "kernel", "name": name, "ts": begin, "dur": end - begin}
        for name, begin, end in names
    ]
    assert ratios(events, "nccl", "", 1e-6) == {}
