"""Random small scripts are recorded as a CPU runs them (`tests.jobs.capturing.fuzz`)."""

import pytest

from tests.jobs.capturing.fuzz import Drawn, differences


@pytest.mark.parametrize(
    "seed",
    [*range(4), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(4, 64))],
)
def test_a_random_script_is_recorded_as_a_cpu_runs_it(seed: int) -> None:
    assert differences(Drawn.of(seed)) == []
