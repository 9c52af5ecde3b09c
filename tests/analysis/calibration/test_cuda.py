"""Our code for CUDA, on a GPU that is not there and takes as long as the H100's file says."""

import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks import calibration
from sim.analysis.calibration import kernel_profile
from sim.analysis.calibration.timing import (
    clock,
    collectives,
    host_times,
    interference,
    kernel_suite,
    launches,
    provenance,
)
from sim.analysis.calibration.timing.launches import SIZES, copies
from sim.analysis.calibration.training.real_run import Interleaving
from sim.hardware.kernels import profile
from sim.hardware.kernels.time import kernel_time
from sim.interface.cli.main import main
from sim.model.kernels import Attention, Gemm, MemoryBound
from tests.analysis.calibration.gpu import DEVICE, LAUNCH, fake_gpu


@pytest.fixture(scope="module", autouse=True)
def quickly() -> Iterator[None]:
    """Fewer and larger kernels, of every kind: what is large costs nothing here."""
    with pytest.MonkeyPatch.context() as patch:
        for suite in ("quick", "full"):
            few = replace(
                kernel_suite.SIZES["cuda", suite], dims=(2048, 16384), flops=2e13, products=8,
                attentions=8, streams=(2e7, 1e9),
            )  # fmt: skip
            patch.setitem(kernel_suite.SIZES, ("cuda", suite), few)
        patch.setattr(kernel_suite, "LARGEST_STEP", 2e9)
        patch.setattr(kernel_profile, "copies", partial(copies, sizes=SIZES[:3]))
        patch.setattr(clock, "LEAST", 2)
        patch.setattr(clock, "BUDGET", 0.0)
        patch.setattr(interference, "LASTING", 2e-3)
        patch.setattr(host_times, "IN_A_ROW", 3)
        patch.setattr(host_times, "ORDERS", 2)
        patch.setattr(host_times, "REPEATS", 2)
        patch.setattr(launches, "LAUNCHES", 20)
        patch.setattr(launches, "REPEATS", 3)
        patch.setattr(collectives, "_IN_A_ROW", 2)
        patch.setattr(collectives, "_MOST", 3)
        patch.setitem(collectives.PASSES, "quick", 1)
        yield


def ran(command: list[str], world: int = 1, rank: int = 0) -> tuple[int, str, str]:
    """Exit code, output and errors of a command where there are so many GPUs."""
    with fake_gpu(world, rank):
        answer = CliRunner().invoke(main, command)
    if answer.exception and not isinstance(answer.exception, SystemExit):
        raise answer.exception
    return answer.exit_code, answer.stdout, answer.stderr


@pytest.fixture(scope="module")
def calibrated(quickly: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, str]:
    """The profile of the full suite, and what was said meanwhile."""
    out: Path = tmp_path_factory.mktemp("cuda") / "mine.toml"
    command = ["calibrate", "kernels", "--device=cuda", "--suite=full", f"--out={out}"]
    code, _, said = ran(command)
    assert code == 0, said
    return profile.load(str(out)), said


def test_what_is_timed_is_the_kernel_that_its_row_names(calibrated: tuple[Any, str]) -> None:
    """Dimensions, precision, direction, mask and generation: else its time were another's."""
    own, _ = calibrated
    seen: Counter[str] = Counter()
    for one in own.measurements:
        kernel, offered = one.kernel, ("flash2",)
        if isinstance(kernel, MemoryBound):
            continue
        if isinstance(kernel, Attention):
            seen[kernel.name] += 1
            if kernel.name == "math":
                continue
            offered = ("flash1" if kernel.name == "memory-efficient" else kernel.name,)
            if kernel.precision == "tf32":  # CUTLASS's FastF32 whatever torch is told
                kernel = replace(kernel, precision="fp32")
        seen[kernel.precision] += 1
        expected = max(kernel_time(kernel, DEVICE, offered), LAUNCH)
        assert one.seconds == pytest.approx(expected, rel=0.03), kernel
    assert {"bf16", "fp16", "tf32", "fp32", "fp8"} <= {*seen}
    assert {"flash2", "cudnn", "memory-efficient", "math"} <= {*seen}


def test_only_what_does_not_fit_is_left_out(calibrated: tuple[Any, str]) -> None:
    own, said = calibrated
    left = [line for line in said.splitlines() if "left out" in line]
    assert all("out of memory" in line for line in left), left
    assert len(left) < len(own.measurements) / 20


def test_the_fit_finds_the_rates_of_the_device(calibrated: tuple[Any, str]) -> None:
    rates, own = calibrated[0].origin.rates["gemm"], DEVICE.gemm
    for precision in ("bf16", "fp16", "tf32", "fp32", "fp8"):
        assert rates["full"][precision] == pytest.approx(getattr(own.full, precision), rel=0.01)
    kept_out = {one.kind: one.median for one in calibrated[0].origin.residuals}
    assert kept_out["gemm"] < 0.01


def test_launches_copies_and_overlap_are_those_of_the_fake_device(
    calibrated: tuple[Any, str],
) -> None:
    here = calibrated[0].environment
    assert here.host.issue == pytest.approx(LAUNCH, rel=0.01)
    assert 0.0 < here.host.node < here.host.latency
    beside = {(one.kernel, one.beside): one.slowdown for one in here.overlaps}
    assert beside == {
        ("gemm", "copy"): pytest.approx(1.0, rel=0.05),
        ("stream", "copy"): pytest.approx(1.0, rel=0.05),
    }
    kinds = {(one.kind, one.pinned) for one in here.copies}
    across = {(kind, pinned) for kind in ("host to device", "device to host") for pinned in (0, 1)}
    assert kinds == {*across, ("device to device", False)}


def test_every_operator_takes_the_host_of_the_fake_device_one_launch(
    calibrated: tuple[Any, str],
) -> None:
    """There a launch is one for every operator, views and the host's own counters are free."""
    own = {(one.operator, one.phase): one for one in calibrated[0].operators}
    asked = [
        ("addmm", "forward"), ("mm", "backward"), ("native_layer_norm", "forward"),
        ("scaled_dot_product_attention", "forward"), ("embedding_dense_backward", "backward"),
        ("native_dropout", "forward"), ("_foreach_lerp_", "optimizer"),
        ("_fused_adamw_", "optimizer"),
    ]  # fmt: skip
    for key in asked:
        assert own[key].of(tensors=9) == pytest.approx(LAUNCH, rel=0.02), key  # type: ignore[index]
    assert own["view", "forward"].seconds < 0.01 * LAUNCH


COLLECTIVES = ["calibrate", "collectives", "--backend=nccl", "--ranks=1", "--largest=64 kB"]


@pytest.mark.parametrize(("world", "rank"), [(1, 0), (4, 0), (4, 3)])
def test_collectives_are_timed_over_nccl(tmp_path: Path, world: int, rank: int) -> None:
    out = tmp_path / "readings.csv"
    code, said, errors = ran([*COLLECTIVES, f"--out={out}"], world, rank)
    assert code == 0, errors
    if rank:
        assert not said  # rank 0 reports
        return
    kinds = {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all"}
    seen = {line.split(",")[0] for line in out.read_text().splitlines()[1:]}
    assert seen == kinds | ({"point_to_point"} if world > 1 else set())


MEASURE = ["measure", "gpt2-one-gpu", "--device=cuda", "--steps=2", "--json"]
SMALL = ("topology=dgx-h100-ndr", "stack=pytorch-eager", "model.layers=2", "plan.microbatch=4")


@pytest.mark.parametrize(
    ("world", "settings"),
    [
        (1, ("stack=pytorch-graph", "plan.global_batch=4", "model=llama3.2-1b", "model.seq=1024")),
        (1, ("plan.recompute=selective", "model.attention=standard", "plan.global_batch=4")),
        (1, ("plan.recompute=full", "plan.precision=tf32", "plan.global_batch=4")),
        (2, ("gpus=2", "plan.global_batch=16")),
        (4, ("gpus=4", "plan.zero=3", "plan.global_batch=16")),
    ],
)
def test_a_training_step_is_measured(world: int, settings: tuple[str, ...]) -> None:
    """Its kernels take as long as the prediction's. The host, for which the clock has no table,
    is in the prediction alone, so that it is longer by a third at this size, and by two fifths
    with ZeRO-3, whose first gather waits for the host to open the step."""
    command = [*MEASURE, *(f"--set={one}" for one in (*SMALL, *settings))]
    code, said, errors = ran(command, world)
    assert code == 0, errors
    compared = json.loads(said)["quantities"]
    assert compared["parameters"]["error"] == 0
    assert 0.0 < compared["step time"]["error"] < 0.4
    if "peak memory" in compared:  # a graph's is a pool of its own
        assert abs(compared["peak memory"]["error"]) < 0.025


def few(patch: pytest.MonkeyPatch) -> None:
    """Next to no kernels."""
    from sim.analysis.calibration.timing.calls import memory_bound

    for suite in ("quick", "full"):
        own = replace(
            kernel_suite.SIZES["cuda", suite], products=3, attentions=4, precisions=("bf16",)
        )
        patch.setitem(kernel_suite.SIZES, ("cuda", suite), own)
    kinds = {name: memory_bound.KINDS[name] for name in ("stream", "norm", "adam")}
    patch.setattr(memory_bound, "KINDS", kinds)


def test_kernels_are_timed_between_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    few(monkeypatch)
    settings = (*SMALL, "gpus=2", "plan.global_batch=8", "model.layers=1")
    command = [*MEASURE, "--calibrate", *(f"--set={one}" for one in settings)]
    code, said, errors = ran(command, 2)
    assert code == 0, errors
    assert json.loads(said)["source"].endswith("timings between the steps")


def test_kernels_are_timed_beside_an_all_reduce_where_there_are_ranks() -> None:
    with fake_gpu(world=2):
        import torch.distributed as dist

        dist.init_process_group("nccl")
        found = {(one.kernel, one.beside) for one in interference.slowdowns("cuda")}
        kernel_profile._call_together(Gemm(name="forward", m=64, n=64, k=64), "cuda")()
    assert ("gemm", "all_reduce") in found


@pytest.mark.long
def test_a_calibration_goes_on_where_its_minutes_were_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`make calibrate DEVICE=cuda`, in slices: kernels, then steps, then table and picture."""
    few(monkeypatch)
    job = calibration.TrainingJob(model="gpt2-124m", seq=128, microbatch=1)
    monkeypatch.setattr(calibration, "training_jobs", lambda device: [job])
    short = Interleaving(rounds=1, steps=2)
    monkeypatch.setattr(calibration, "Interleaving", lambda **_: short)
    out = tmp_path / "mine.toml"
    command = ["--device=cuda", "--topology=dgx-h100-ndr", f"--out={out}"]
    said = []
    for minutes in ("0", "60"):
        with fake_gpu():
            answer = CliRunner().invoke(calibration.main, [*command, f"--minutes={minutes}"])
        assert answer.exit_code == 0, answer.output
        said.append(answer.output)
    assert "the same command goes on from there" in said[0]
    assert not said[0].count("wrote")
    assert "1 runs: MAPE" in said[1]
    assert (tmp_path / "mine-steps.png").exists()


def test_the_gpu_is_described_by_its_driver(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho '580.159, 1980 MHz, 1980 MHz, 2619 MHz, 41'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with fake_gpu():
        known = provenance.provenance("cuda")
    assert known["device"] == "NVIDIA H100 80GB SXM"
    assert (known["driver version"], known["clocks sm"], known["cuda"]) == (
        "580.159", "1980 MHz", "13.0",
    )  # fmt: skip
