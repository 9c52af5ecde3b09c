"""A new device is one TOML file in one's own folder: a step, a search, a topology and a picture."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sim.interface.cli.files import DOES_NOT_FIT
from sim.interface.cli.main import main

DEVICE = """
name = "Mine"
generation = "hopper"
memory = "40 GiB"
reserve = "1 GiB"
memory_bandwidth = "4 TB/s"
sms = 100
l2 = "50 MiB"
clock = "2 GHz"
power = "500 W"
[peak]
fp16 = "800 TFLOP/s"
bf16 = "800 TFLOP/s"
[gemm]
full = { fp16 = 0.7, bf16 = 0.7 }
half_tile = 0.6
quarter_tile = 0.4
prologue = "2 us"
epilogue = 0.5
floor = "2 us"
[stream]
bandwidth = 0.8
floor = "2 us"
[attention.flash2]
forward = { 64 = 0.4, 128 = 0.5 }
backward = { 64 = 0.3, 128 = 0.4 }
"""
TOPOLOGY = """
name = "rack"
device = "mine"
gpus = 16
gpus_per_node = 8
[node]
fabric = "nvswitch"
bandwidth = "400 GB/s"
latency = "1 us"
[network]
shape = "switch"
kind = "roce"
nics = 8
bandwidth = "400 Gb/s"
latency = "2 us"
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "topologies" / "devices").mkdir(parents=True)
    (tmp_path / "topologies" / "devices" / "mine.toml").write_text(DEVICE)
    (tmp_path / "topologies" / "rack.toml").write_text(TOPOLOGY)
    return tmp_path


def sim(*arguments: str) -> str:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code in (0, DOES_NOT_FIT), result.output
    return result.stdout


def answer(*arguments: str) -> dict[str, Any]:
    last: dict[str, Any] = json.loads(sim(*arguments, "--json").splitlines()[-1])
    return last


def test_it_runs_a_packaged_scenario() -> None:
    new = answer("run", "gpt2-one-gpu", "--set", "topology.device=mine")
    a100 = answer("run", "gpt2-one-gpu")
    assert new["step_time"] < 0.8 * a100["step_time"]
    slower = ("--set", "topology.device=mine", "--set", "device.peak.bf16=80 TFLOP/s")
    assert answer("run", "gpt2-one-gpu", *slower)["step_time"] > new["step_time"]


def test_its_memory_is_what_a_job_must_fit_into() -> None:
    run = ("run", "llama3-8b-long-context", "--set", "topology.device=mine")
    assert answer(*run)["fits"]
    assert not answer(*run, "--set", "device.memory=20 GiB")["fits"]


def test_it_is_listed_shown_and_drawn_in_a_topology(folder: Path) -> None:
    assert "  mine\n" in sim("list", "devices")
    assert "rack: 16 x Mine, 2 nodes of 8" in sim("show", "rack", "--picture", "rack.png")
    assert (folder / "rack.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.long
def test_the_search_plans_for_it() -> None:
    best = answer("plan", "gpt2-124m", "rack", "--global-batch", "64", "--jobs", "1")["best"][0]
    assert best["memory_per_gpu"]["total"] < 39 * 2**30
    assert best["plan"]["dp"] == 16
