"""Commands that say or write something answer from Python, too."""

from pathlib import Path

import pytest
from click.testing import CliRunner

import sim
from sim.config.errors import InputError
from sim.interface.cli.main import main


@pytest.mark.parametrize("name", ["llama3-8b", "dgx-h100-ndr", "ring", "vidur-a100"])
def test_what_is_shown_is_what_the_command_prints(name: str) -> None:
    shown = sim.show(name)
    assert str(shown) + "\n" == CliRunner().invoke(main, ["show", name]).output
    assert shown._repr_html_().startswith("<")


def test_a_topology_is_drawn_and_a_model_is_not(tmp_path: Path) -> None:
    path = tmp_path / "cluster.png"
    assert sim.show("dgx-h100-ndr", gpus=16).plot(path) is not None
    assert path.stat().st_size > 5000
    with pytest.raises(InputError, match="shown as text"):
        sim.show("llama3-8b").plot()
    with pytest.raises(InputError, match="has no number of GPUs"):
        sim.show("llama3-8b", gpus=8)


@pytest.mark.long
def test_a_scenario_is_begun_and_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    job = {"model": "llama3-8b", "topology": "dgx-h100-ndr", "gpus": 16, "global_batch": 64}
    started = sim.init("mine", **job)
    assert (started.fits, str(started)) == (True, "sim run mine")
    assert sim.run("mine").fits
    with pytest.raises(InputError, match="is there already"):
        sim.init("mine", **job)
    assert not sim.init("large", **{**job, "model": "llama3-405b", "gpus": 8}).fits


def test_measuring_and_calibrating_refuse_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no-such-scenario"):
        sim.measure("no-such-scenario", device="cpu")
    with pytest.raises(InputError, match="device"):
        sim.calibrate("tpu", "quick", tmp_path / "p.toml")
