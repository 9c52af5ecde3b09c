"""Profiles: measured kernel times are preferred to modelled ones."""

from dataclasses import replace
from pathlib import Path

import pytest

from sim.errors import InputError
from sim.hardware import device as devices
from sim.hardware import profile as profiles
from sim.hardware.profile import Origin, Profile
from sim.hardware.time import kernel_time
from sim.model.kernel import Attention, Gemm, Stream

TOML = """
device = "a100-80gb-sxm"
measurements = "mine.csv"
date = "2025-01-31"
driver = "550.54"
library = "torch 2.6, CUDA 12.4"
samples = 30
"""
COLUMNS = "kernel,m,n,k,batch,heads,kv_heads,head,causal,backward,accumulate,precision,bytes"
HEADER = f"{COLUMNS},seconds,spread\n"
ROWS = (
    "gemm,512,256,128,1,,,,,,false,bf16,,1e-3,0.01\n"
    "attention,1024,1024,,2,8,8,64,true,true,,fp16,,2e-3,0.01\n"
    "stream,,,,,,,,,,,,1000,1e-6,0.01\n"
    "stream,,,,,,,,,,,,100000,1e-4,0.01\n"
)
PRODUCT = Gemm(name="qkv", m=512, n=256, k=128)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    there = tmp_path / "topologies" / "profiles"
    there.mkdir(parents=True)
    (there / "mine.toml").write_text(TOML)
    (there / "mine.csv").write_text(HEADER + ROWS)
    monkeypatch.chdir(tmp_path)
    profiles.load.cache_clear()
    return there


def test_measured_shapes_are_found_whatever_they_are_called(folder: Path) -> None:
    profile = profiles.load("mine")
    assert profile.time(PRODUCT) == 1e-3
    assert profile.time(replace(PRODUCT, m=513)) is None
    assert profile.time(replace(PRODUCT, accumulate=True)) is None
    backward = Attention(
        name="any",
        batch=2,
        heads=8,
        kv_heads=8,
        q=1024,
        kv=1024,
        head=64,
        causal=True,
        backward=True,
        precision="fp16",
    )
    assert profile.time(backward) == 2e-3
    assert profile.time(replace(backward, backward=False)) is None


def test_memory_bound_kernels_lie_between_measured_sizes(folder: Path) -> None:
    profile = profiles.load("mine")
    assert profile.time(Stream(name="add", bytes=1e4)) == pytest.approx(1e-5)
    assert profile.time(Stream(name="two", bytes=2e4, launches=2)) == pytest.approx(2e-5)
    assert profile.time(Stream(name="small", bytes=999.0)) is None
    assert profile.time(Stream(name="large", bytes=100001.0)) is None


def test_a_device_that_names_a_profile_prefers_it(folder: Path) -> None:
    plain = devices.load("a100-80gb-sxm")
    measured = replace(plain, profile="mine")
    assert kernel_time(PRODUCT, measured) == 1e-3 != kernel_time(PRODUCT, plain)
    other = replace(PRODUCT, m=8192)
    assert kernel_time(other, measured) == kernel_time(other, plain)


def test_an_empty_profile_knows_nothing() -> None:
    origin = Origin(
        device="d", measurements="m.csv", date="today", driver="1", library="torch", samples=1
    )
    assert Profile(origin=origin).time(Stream(name="add", bytes=1.0)) is None


@pytest.mark.parametrize(
    "row",
    ["gemm,512,256,128,1,,,,,,maybe,bf16,,1e-3,0.01", "stream,,,,,,,,,,,,8,-1,0", "copy,,,,,,,,,,"],
)
def test_a_bad_line_is_named(folder: Path, row: str) -> None:
    (folder / "mine.csv").write_text(HEADER + ROWS + row + "\n")
    with pytest.raises(InputError, match=r"mine.csv, line 6: is no measured kernel"):
        profiles.load("mine")


def test_a_missing_table_is_named(folder: Path) -> None:
    (folder / "mine.csv").unlink()
    with pytest.raises(InputError, match=r"mine.toml: mine.csv cannot be read"):
        profiles.load("mine")
