"""What does not fit into memory says by how much, what is largest and what to do."""

import dataclasses

import pytest

from sim.parallel.plan import Plan
from sim.results.memory_advice import memory_line, remedies
from tests.results.test_text import GIB, RESULT


def test_what_does_not_fit_says_by_how_much_what_is_largest_and_what_to_do():
    planned = dataclasses.replace(RESULT, plan=Plan(global_batch=64, tp=4))
    assert memory_line(planned) == (
        "Memory of the fullest GPU: does not fit: 93.0 GiB of 80.0 GiB; "
        "the largest part is activations; try recompute = selective or tp = 8"
    )


def test_what_fits_says_so_and_advises_nothing():
    line = memory_line(dataclasses.replace(RESULT, fits=True, capacity=96 * GIB))
    assert line == "Memory of the fullest GPU: 93.0 GiB of 96.0 GiB, fits"


@pytest.mark.parametrize(
    ("part", "plan", "expected"),
    [
        ("activations", {"tp": 8, "recompute": "selective"}, ["recompute = full", "pp = 2"]),
        (
            "activations",
            {"tp": 8, "recompute": "full", "microbatch": 4},
            ["microbatch = 2", "pp = 2"],
        ),
        ("optimizer", {"dp": 8}, ["zero = 1", "tp = 2"]),
        ("optimizer", {"dp": 8, "zero": 1}, ["tp = 2", "pp = 2"]),
        ("optimizer", {"dp": 1, "tp": 8}, ["pp = 2"]),
        ("gradients", {"tp": 8, "pp": 4}, ["pp = 8"]),
    ],
)
def test_advice_is_never_what_the_plan_does_already(part, plan, expected):
    assert remedies(part, Plan(global_batch=64, **plan)) == expected
