"""SimuMax's system files are read as they count."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.published_kernels import main
from benchmarks.simumax import read
from sim.config.errors import InputError
from sim.model.kernels import Attention, Gemm

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


def test_products_have_the_time_that_their_share_implies(tmp_path: Path) -> None:
    (square, added), _ = read(system_file(tmp_path))
    assert square.kernel == Gemm(name="product", m=4096, n=4096, k=4096)
    assert square.seconds == pytest.approx(2 * 4096**3 / (0.72 * 312e12))
    assert isinstance(added.kernel, Gemm)
    assert added.kernel.accumulate
    assert added.kernel.k == 8192


def test_attention_counts_masked_scores_too(tmp_path: Path) -> None:
    _, (forward, backward) = read(system_file(tmp_path))
    assert isinstance(forward.kernel, Attention)
    assert forward.seconds == pytest.approx(4 * 32 * 4096**2 * 128 / 312e12)
    assert backward.seconds == pytest.approx(2.5 * forward.seconds)


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
