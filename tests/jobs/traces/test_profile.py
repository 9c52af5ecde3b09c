"""Products that a trace has timed become a device's profile, in the pass that replays it."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sim.config import reads
from sim.hardware.device import Device, load
from sim.hardware.kernels import profile as profiles
from sim.hardware.kernels.time import kernel_time
from sim.interface.cli.main import main
from sim.jobs.traces.kineto import events_of
from sim.jobs.traces.kineto_operators import timed_kernels
from sim.model.kernels import Gemm
from tests.jobs.traces.synthetic import Machine

SHAPES = [(m, n, k) for m in (2048, 4096, 8192) for n in (4096, 14336) for k in (4096, 8192)]
SLOWER = 1.3


def gemm(m: int, n: int, k: int) -> Gemm:
    return Gemm(name="forward", m=m, n=n, k=k, precision="bf16")


def seconds_of(product: Gemm, device: Device) -> float:
    return SLOWER * kernel_time(product, device, ())


def traced(path: Path, device: Device, *, gpu: bool = True) -> Path:
    """A step of products, which take `SLOWER` times as long as the device's file says."""
    rank = Machine()
    for number, (m, n, k) in enumerate(SHAPES):
        us = 1e6 * seconds_of(gemm(m, n, k), device)
        args: dict[str, Any] = {
            "External id": number, "Input Dims": [[m, k], [k, n]],
            "Input type": ["c10::BFloat16"] * 2,
        }  # fmt: skip
        rank.add("cpu_op", "aten::mm", rank.now, 20.0 if gpu else us, tid=1, **args)
        if gpu:
            rank.launch(us, **{"External id": number})
        rank.think(20.0 if gpu else us)
    return rank.write(path)


def run(*words: object) -> Any:
    result = CliRunner().invoke(main, list(map(str, words)))
    assert result.exit_code == 0, result.output
    return result


def test_the_profile_of_a_trace_has_what_its_operators_took_the_host(tmp_path: Path) -> None:
    """25 us: the operator of 20 us, behind 5 us that are left of the launch before."""
    device, out = load("h100-80gb-sxm"), tmp_path / "mine.toml"
    trace = traced(tmp_path / "trace.json", device)
    run("calibrate", "import", trace, "--as", "h100-80gb-sxm", "--out", out)
    (own,) = profiles.load(str(out)).operators
    assert (own.operator, own.phase, own.calls) == ("mm", "forward", len(SHAPES))
    assert own.seconds == pytest.approx(25e-6)
    assert "the host 25.0 us each" in run("show", out, "--picture", tmp_path / "mine.png").output


def test_a_trace_is_read_once_for_its_kernels_and_its_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = traced(tmp_path / "trace.json", load("h100-80gb-sxm"))
    opened: list[Path] = []
    content = reads.content
    monkeypatch.setattr(reads, "content", lambda path, *a: opened.append(path) or content(path, *a))
    out = tmp_path / "mine.toml"
    run("calibrate", "import", trace, "--as", "h100-80gb-sxm", "--out", out)
    assert opened.count(trace) == 1


@pytest.mark.parametrize("gpu", [True, False])
def test_products_have_their_shapes_and_seconds(tmp_path: Path, gpu: bool) -> None:
    device = load("h100-80gb-sxm")
    found = list(timed_kernels(events_of(traced(tmp_path / "trace.json", device, gpu=gpu))))
    assert [product for product, _ in found] == [gemm(*shape) for shape in SHAPES]
    expected = [seconds_of(product, device) for product, _ in found]
    assert [seconds for _, seconds in found] == pytest.approx(expected, rel=1e-6)


def test_one_command_replays_a_trace_and_writes_the_profile_of_its_kernels(tmp_path: Path) -> None:
    device = load("h100-80gb-sxm")
    path, out = traced(tmp_path / "trace.json", device), tmp_path / "mine.toml"
    words = ("--profile", out, "--as", "h100-80gb-sxm", "--json")
    answer = json.loads(run("replay", path, *words).stdout)
    assert answer["replayed"]["step_time"] == pytest.approx(answer["measured"], rel=0.02)
    of_import = tmp_path / "imported.toml"
    run("calibrate", "import", path, "--as", "h100-80gb-sxm", "--out", of_import)
    tables = [file.with_suffix(".csv").read_text() for file in (out, of_import)]
    assert tables[0] == tables[1]
    assert tables[0].count("\n") == 1 + len(SHAPES)
    (errors,) = tomllib.loads(out.read_text())["residuals"]
    assert errors["kind"] == "gemm"
    assert errors["median"] < 0.05


def test_a_profile_and_its_device_go_together(tmp_path: Path) -> None:
    path = traced(tmp_path / "trace.json", load("h100-80gb-sxm"))
    for words in (["--profile", tmp_path / "mine.toml"], ["--as", "h100-80gb-sxm"]):
        result = CliRunner().invoke(main, ["replay", str(path), *map(str, words)])
        assert result.exit_code == 2
        assert "--profile and --as: go together; write both" in result.stderr


def test_a_trace_without_shapes_makes_no_profile(tmp_path: Path) -> None:
    rank = Machine()
    rank.launch(100.0)
    path, out = rank.write(tmp_path / "trace.json"), tmp_path / "mine.toml"
    words = ["replay", str(path), "--profile", str(out), "--as", "h100-80gb-sxm"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 2
    assert "record_shapes=True" in result.stderr
    assert not out.exists()


@pytest.mark.parametrize(("gpu", "name"), [(False, "h100-80gb-sxm"), (True, "cpu")])
def test_the_trace_of_a_cpu_is_no_profile_of_a_gpu(tmp_path: Path, gpu: bool, name: str) -> None:
    path = traced(tmp_path / "trace.json", load("h100-80gb-sxm"), gpu=gpu)
    words = ["calibrate", "import", str(path), "--as", name, "--out", str(tmp_path / "mine.toml")]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 2
    assert "kernels of a GPU, but --as names a " in result.stderr
    assert not (tmp_path / "mine.toml").exists()
