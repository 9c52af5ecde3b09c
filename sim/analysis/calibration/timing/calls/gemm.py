"""Matrix products as torch executes them."""

from typing import Any

from sim.analysis.calibration.timing.calls.tensors import random_tensors
from sim.analysis.calibration.timing.clock import Call
from sim.hardware.kernels.measurements import variant
from sim.model.kernels import Gemm


def call(gemm: Gemm, device: str) -> Call:
    """Return a call of y = x W^T, with W (n, k) as in `nn.Linear`, or of a product of its backward
    pass."""
    import torch

    if gemm.precision == "fp8":
        return _scaled(gemm, device)
    m, n, k, batch = gemm.m, gemm.n, gemm.k, gemm.batch
    random = random_tensors(device, gemm.precision)
    if batch > 1:
        a, b = random(batch, m, k), random(batch, n, k).transpose(1, 2)
        return lambda: torch.bmm(a, b)
    match variant(gemm):
        case "dgrad":
            left, right = random(m, k), random(k, n)
        case "wgrad":  # `gemm` describes (inputs, outputs); torch computes the transpose
            left, right = random(k, n).t(), random(k, m)
        case _:
            left, right = random(m, k), random(n, k).t()
    return lambda: torch.mm(left, right)


def _scaled(gemm: Gemm, device: str) -> Call:
    import torch

    fp8: Any = torch.float8_e4m3fn
    left = torch.randn(gemm.m, gemm.k, device=device).to(fp8)
    right = torch.randn(gemm.n, gemm.k, device=device).to(fp8).t()
    unit = torch.ones((), device=device)
    return lambda: torch._scaled_mm(
        left, right, scale_a=unit, scale_b=unit, out_dtype=torch.bfloat16
    )
