"""LayerNorm of torch 1.11 to 2.7 beside the times that its authors published."""

from dataclasses import replace

import pytest

from sim.hardware import device
from sim.hardware.kernels.time import kernel_time
from sim.model.execution import Execution, Sharding
from sim.model.fusion import Fusion
from sim.model.operators import normalise
from sim.model.transformer import Transformer

MODEL = Transformer(
    layers=1, hidden=1024, heads=16, ffn=4096, vocab=100, seq=32, tied_embeddings=True
)


def seconds(rows: int, columns: int, precision: str, *, serial: bool = True) -> float:
    """Forward and backward on an A100."""
    run = Execution(
        model=replace(MODEL, hidden=columns), microbatch=1, sharding=Sharding(),
        precision=precision, fusion=Fusion(norm=True, serial_gains=serial),
    )  # fmt: skip
    own = normalise(run, "norm", rows, residual=False)
    a100 = device.load("a100-40gb-sxm")
    return sum(kernel_time(kernel, a100) for kernel in (*own.forward, *own.input_gradient))


@pytest.mark.parametrize(
    ("rows", "columns", "precision", "published"),
    [
        (8192, 1024, "fp16", 144.8),
        (8192, 1024, "fp32", 211.9),
        (6144, 1536, "fp16", 145.7),
        (6144, 1536, "fp32", 236.6),
        (8192, 1536, "fp16", 186.1),
        (8192, 1536, "fp32", 307.8),
    ],
)
def test_norms_take_what_pytorch_s_pull_request_87445_prints(
    rows, columns, precision, published
) -> None:
    assert seconds(rows, columns, precision) == pytest.approx(published * 1e-6, rel=0.1)


def test_gains_of_narrow_models_wait_and_those_of_wide_ones_do_not() -> None:
    def lost(columns: int) -> float:
        return seconds(32768, columns, "bf16") - seconds(32768, columns, "bf16", serial=False)

    assert lost(768) > lost(1536) > 0.0
    assert lost(8192) == pytest.approx(0.0, abs=1e-12)
