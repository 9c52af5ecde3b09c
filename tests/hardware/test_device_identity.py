"""Devices are equal by all that they state, never by name, and what is cached of one knows it."""

import os
import pickle
import subprocess
import sys
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import sim
from sim.hardware import device as devices
from sim.hardware.device import Device
from sim.hardware.kernels.measurements import COLUMNS
from sim.hardware.kernels.time import kernel_time
from sim.model.kernels import Gemm

PRODUCT = Gemm(name="qkv", m=4096, n=4096, k=4096)
A100 = devices.load("a100-80gb-sxm")


def changed(value: Any) -> Any:
    """Another value of the same kind."""
    if is_dataclass(value):
        name = fields(value)[0].name
        return replace(value, **{name: changed(getattr(value, name))})  # type: ignore[type-var]
    if isinstance(value, dict):
        key = next(iter(value))
        return value | {key: changed(value[key])}
    if isinstance(value, str):
        return "hopper" if value == "ampere" else f"{value}a100"
    return 0.9 * value + 0.01 if isinstance(value, float) else 17 if value is None else value + 1


@pytest.mark.parametrize("key", [field.name for field in fields(Device) if field.name != "profile"])
def test_devices_of_one_name_that_differ_in_anything_are_two(key: str) -> None:
    other = replace(A100, **{key: changed(getattr(A100, key))})
    assert other != A100
    assert hash(other) != hash(A100)
    assert other in {A100: 1, other: 2}


def test_equal_devices_have_one_hash_and_are_one_object_when_loaded() -> None:
    assert hash(replace(A100)) == hash(A100)
    assert replace(A100) == A100
    assert devices.load("a100-80gb-sxm") is A100


def test_two_devices_of_one_name_have_times_of_their_own() -> None:
    slow = replace(A100, memory_bandwidth=A100.memory_bandwidth / 1000)
    times = [kernel_time(PRODUCT, device) for device in (A100, slow, A100, slow)]
    assert times[0] == times[2] < times[1] == times[3]


def test_peaks_set_one_after_the_other_in_a_process_do_not_mix() -> None:
    def step(peak: str) -> float:
        return sim.run(sim.load("gpt2-one-gpu", [f"device.peak.bf16={peak}"])).step_time

    fast, slow = step("312 TFLOP/s"), step("31.2 TFLOP/s")
    assert fast == sim.run("gpt2-one-gpu").step_time
    assert slow > 2 * fast
    assert (step("312 TFLOP/s"), step("31.2 TFLOP/s")) == (fast, slow)


def test_another_process_hashes_for_itself() -> None:
    hash(A100)
    code = (
        "import pickle, sys; from sim.hardware import device; "
        "given = pickle.load(sys.stdin.buffer); own = device.load('a100-80gb-sxm'); "
        "assert given == own; assert hash(given) == hash(own)"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    run = [sys.executable, "-c", code]
    subprocess.run(run, input=pickle.dumps(A100), env=environment, check=True)


def test_a_profile_that_was_written_again_is_read_again(tmp_path: Path) -> None:
    def measured(seconds: float) -> float:
        (tmp_path / "mine.toml").write_text('device = "a100-80gb-sxm"\nmeasurements = "mine.csv"\n')
        row = f"gemm,,forward,4096,4096,4096,1,,,,,,false,bf16,,{seconds},0.01,false\n"
        (tmp_path / "mine.csv").write_text(",".join(COLUMNS) + "\n" + row)
        return kernel_time(PRODUCT, replace(A100, profile=str(tmp_path / "mine.toml")))

    assert measured(1e-3) == 1e-3
    assert measured(25e-4) == 25e-4
