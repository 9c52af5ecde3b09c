"""The same script from several versions of torch: what others recorded is in `recordings`.

Those files were made by torch 2.11.0 and 2.12.1, builds with CUDA, from the scripts of this folder:
`capture_script(path, world=64)`. A recording of DDP, made before views of buckets were followed, is
there for tests that play any recording.
"""

from pathlib import Path

import pytest

import sim
from sim.jobs.capturing.device import NEWEST, OLDEST, release
from sim.jobs.recorded.file import read
from sim.jobs.recorded.recording import Recording
from sim.jobs.recorded.setup import RecordedScenario
from tests.jobs.capturing.conftest import Capture
from tests.jobs.capturing.test_compiled import COMPILED
from tests.jobs.capturing.test_sharded import FSDP2

SCRIPTS = {"fsdp2": FSDP2, "compiled": COMPILED}
FILES = [
    file
    for name in sorted(SCRIPTS)
    for file in sorted((Path(__file__).parent / "recordings").glob(f"{name}-2.*.json.gz"))
]


def played(recordings: tuple[Recording, ...]) -> sim.Result:
    scenario = RecordedScenario(
        record=recordings, topology="dgx-h100-ndr", stack="torchtitan-eager"
    )
    return sim.run(scenario)


@pytest.mark.parametrize("file", FILES, ids=[file.name for file in FILES])
def test_the_same_script_takes_as_long(file: Path, captured: Capture) -> None:
    name, _, version = file.name.removesuffix(".json.gz").partition("-")
    other, own = read(file), (captured(SCRIPTS[name], world=64),)
    assert other[0].torch.startswith(version)
    assert OLDEST <= release(version) <= NEWEST
    here, there = played(own), played(other)
    assert there.step_time == pytest.approx(here.step_time, rel=0.01)
    assert there.memory_per_gpu["total"] == pytest.approx(here.memory_per_gpu["total"], rel=0.01)
