"""The fit finds rates that made the data, and reads SimuMax's files as they count."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sim.calibration.fitting.gemm import Shape, error, fitted, main, read
from sim.config.errors import InputError
from sim.hardware import device as devices
from sim.hardware.kernels.gemm import gemm_time
from sim.model.kernels import Attention, Gemm

A100 = devices.load("a100-80gb-pcie")
SQUARE = "b=1, m=4096, k=4096, n=4096, layout=TN, accumulate=False, out_dtype=bf16"
ADDED = "b=1, m=4096, k=8192, n=4096, layout=NT, accumulate=True, out_dtype=fp32"
HALF = "b=1, m=4096, k=8192, n=4096, layout=NT, accumulate=True, out_dtype=bf16"
HEADS = "batch=1, seq_len=4096, head_num=32, kv_head_num=8, qk_head_dim=128, v_head_dim=128"
WIDE = "batch=1, seq_len=4096, head_num=32, kv_head_num=8, qk_head_dim=192, v_head_dim=128"


def system_file(folder: Path) -> Path:
    def table(shares: dict[str, float]) -> dict[str, Any]:
        return {"tflops": 312, "accurate_efficient_factor": shares}

    attention = {f"{HEADS}, qkv_contiguous=True": 1.0, f"{HEADS}, qkv_contiguous=False": 0.9}
    wide = {f"{WIDE}, qkv_contiguous=True": 1.0}
    operations = {
        "matmul": table({SQUARE: 0.72, ADDED: 0.70, HALF: 0.1}),
        "sdp_fwd": table(attention | wide),
        "sdp_bwd": table(attention),
    }
    path = folder / "system.json"
    path.write_text(json.dumps({"accelerator": {"op": operations}}))
    return path


def test_products_are_read_with_the_time_that_their_share_means(tmp_path: Path) -> None:
    (square, added), _ = read(system_file(tmp_path))
    assert square.kernel == Gemm(name="product", m=4096, n=4096, k=4096)
    assert square.time == pytest.approx(2 * 4096**3 / (0.72 * 312e12))
    assert isinstance(added.kernel, Gemm)
    assert added.kernel.accumulate
    assert added.kernel.k == 8192


def test_attention_counts_what_the_mask_leaves_out(tmp_path: Path) -> None:
    _, (forward, backward) = read(system_file(tmp_path))
    assert isinstance(forward.kernel, Attention)
    assert forward.time == pytest.approx(4 * 32 * 4096**2 * 128 / 312e12)
    assert backward.time == pytest.approx(2.5 * forward.time)


def test_a_fit_finds_the_rates_that_made_the_times() -> None:
    true = replace(
        A100.gemm, sustained=replace(A100.gemm.sustained, bf16=0.70), burst=1.15, prologue=4e-6
    )
    bandwidth = A100.memory_bandwidth * A100.stream.bandwidth
    shapes = []
    for m in (512, 1024, 1536, 4096, 8192):
        for k in (512, 1024, 4096, 8192):
            gemm = Gemm(name="product", m=m, n=4096, k=k)
            time = gemm_time(gemm, true, peak=312e12, sms=108, bandwidth=bandwidth)
            shapes.append(Shape(kernel=gemm, time=time))
    device = replace(A100, name="fitted", gemm=fitted(A100, shapes))
    assert error(device, shapes).median < 0.01 < error(A100, shapes).median
    assert device.gemm.sustained.of("bf16") == pytest.approx(0.70, rel=0.02)


def test_errors_of_exact_predictions_are_zero() -> None:
    from sim.hardware.kernels.time import kernel_time

    gemm = Gemm(name="product", m=4096, n=4096, k=4096)
    one = error(A100, [Shape(kernel=gemm, time=kernel_time(gemm, A100))] * 3)
    assert (one.shapes, one.median, one.bias) == (3, 0.0, 0.0)


def test_the_command_prints_errors_by_kind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["a100-80gb-pcie", str(system_file(tmp_path))])
    out = capsys.readouterr().out
    assert "product" in out
    assert "attention" in out


def test_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text("{}")
    with pytest.raises(InputError, match="no SimuMax system file"):
        read(path)
