"""What `--profile` names is told by what the file is of."""

from pathlib import Path

import pytest

from sim import run
from sim.config.errors import InputError
from sim.kind import load
from sim.scenario.setting_texts import setting_of

FABRIC = """\
backend = "nccl"
measurements = "here.csv"
[constants.network.infiniband]
fraction = 0.45
"""


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (FABRIC, "topology.backend"),
        ("device = 'cpu'\nmeasurements = 'here.csv'", "device.profile"),
    ],
)
def test_a_profile_changes_what_it_was_measured_of(tmp_path: Path, text: str, key: str) -> None:
    path = tmp_path / "here.toml"
    path.write_text(text)
    assert setting_of(str(path)) == (key, str(path))


def test_what_is_no_profile_is_refused(tmp_path: Path) -> None:
    (tmp_path / "here.toml").write_text("gpus = 8")
    with pytest.raises(InputError, match="neither of a device nor of a collective library"):
        setting_of(str(tmp_path / "here.toml"))


def test_errors_of_measured_runs_are_told_from_a_profile(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("spreads = []")
    with pytest.raises(InputError, match="measured runs belong in topologies/validated"):
        setting_of(str(tmp_path / "mine.toml"))


def test_a_fabric_that_was_measured_slower_makes_a_longer_step(tmp_path: Path) -> None:
    path = tmp_path / "here.toml"
    path.write_text(FABRIC)
    usual = run(load("gpt3-175b-megatron"))
    slower = run(load("gpt3-175b-megatron", dict([setting_of(str(path))])))
    assert 1.0 < slower.step_time / usual.step_time < 1.5
