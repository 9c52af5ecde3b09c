"""Kernel times from a profile: what share of a step, and what leaves the measured range."""

from pathlib import Path

import pytest
from click.testing import CliRunner

import sim
from sim.config.errors import InputError
from sim.interface.cli.main import main
from sim.uncertainty.device_time import DeviceTime

HEADER = "kernel,variant,name,m,n,k,batch,accumulate,precision,bytes,seconds,kept_out\n"
STREAMS = "stream,,stream,,,,,,,1e3,1e-8,false\nstream,,stream,,,,,,,1e11,1,false\n"
PRODUCTS = (
    "gemm,forward,,1024,1024,1024,1,false,bf16,,1e-4,false\n"
    "gemm,wgrad,,2048,1024,1024,1,false,bf16,,2e-4,false\n"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "mine", "a100-80gb-sxm", PRODUCTS)
    return tmp_path


def write(folder: Path, name: str, device: str, rows: str) -> None:
    (folder / f"{name}.toml").write_text(f'device = "{device}"\nmeasurements = "{name}.csv"\n')
    (folder / f"{name}.csv").write_text(HEADER + rows)


def run(*options: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["run", "gpt3-175b-megatron", *options])
    return done.exit_code, done.output


def test_without_a_profile_all_of_it_is_the_model() -> None:
    result = sim.run("gpt3-175b-megatron")
    assert result.device_time == {"model": 1.0}
    assert "from the profile" not in str(result)


def test_shares_of_a_profile_and_of_the_model_are_told(folder: Path) -> None:
    write(folder, "streams", "a100-80gb-sxm", STREAMS)
    plain = sim.run("gpt3-175b-megatron")
    result = sim.run(sim.load("gpt3-175b-megatron", {"device.profile": "streams.toml"}))
    assert set(result.device_time) == {"profile", "model"}
    assert sum(result.device_time.values()) == pytest.approx(1.0)
    # Memory-bound kernels at 0.1 TB/s instead of some 1.7 take most of the step.
    assert 0.5 < result.device_time["profile"] < 0.9
    assert result.step_time > 1.5 * plain.step_time
    assert "% from the profile, " in str(result)


def test_another_precision_than_the_measured_one_is_modelled(folder: Path) -> None:
    plain = sim.run("gpt3-175b-megatron")
    result = sim.run(sim.load("gpt3-175b-megatron", {"device.profile": "mine.toml"}))
    assert result.device_time == {"profile": 0.0, "model": 1.0}
    assert result.step_time == plain.step_time


def test_a_kernel_beyond_the_measured_range_is_named_with_it(folder: Path) -> None:
    write(folder, "half", "a100-80gb-sxm", PRODUCTS.replace("bf16", "fp16"))
    code, said = run("--profile", "half.toml")
    assert code == 0
    (line,) = (line for line in said.splitlines() if line.startswith("warning: ffn in leaves"))
    assert line.endswith("the range of the profile: n = 6,144, measured from 1,024 to 1,024")


def test_only_the_first_few_are_named() -> None:
    many = DeviceTime(shares={}, outside={f"kernel {n}": "m = 1" for n in range(5)})
    assert len(list(many.warnings)) == 4
    assert list(many.warnings)[-1] == "2 more kernels leave the range of the profile"


def test_a_profile_of_another_device_is_refused(folder: Path) -> None:
    write(folder, "other", "h200-sxm", PRODUCTS)
    with pytest.raises(InputError, match="was measured on h200-sxm, but the cluster has a100"):
        sim.run(sim.load("gpt3-175b-megatron", {"device.profile": "other.toml"}))


def test_a_file_that_is_no_profile_is_refused(folder: Path) -> None:
    (folder / "neither.toml").write_text("format = 1\n")
    code, said = run("--profile", "neither.toml")
    assert code == 2
    assert said == (
        "error: neither.toml: is the profile neither of a device nor of a collective library; "
        "`sim calibrate` writes one\n"
    )


def test_settings_win_over_profiles(folder: Path) -> None:
    write(folder, "half", "a100-80gb-sxm", PRODUCTS.replace("bf16", "fp16"))
    _, said = run("--profile", "half.toml", "--set", "device.profile=mine.toml")
    assert "Kernel times: 0.0 % from the profile, 100.0 % from the model." in said
