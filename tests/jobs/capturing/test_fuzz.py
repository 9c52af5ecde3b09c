"""Random small scripts are recorded as real processes run them (`tests.jobs.capturing.fuzz`)."""

from collections.abc import Iterator

import pytest

from tests.jobs.capturing.fuzz import WORLD, Drawn, differences
from tests.jobs.capturing.peers import Peers

_QUICK = (5, 19)  # HSDP, tensor parallel


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peers]:
    found = Peers(WORLD, tmp_path_factory.mktemp("peers") / "meeting")
    yield found
    found.stop()


@pytest.mark.parametrize(
    "seed",
    [*_QUICK, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(20, 80))],
)
def test_a_random_script_is_recorded_as_real_processes_run_it(seed: int, peers: Peers) -> None:
    assert differences(Drawn.of(seed), peers) == []
